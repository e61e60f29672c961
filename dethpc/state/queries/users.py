"""Users as lists name them: who created an experiment, or launched a task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, select

from dethpc.domain.facts import Experiment
from dethpc.domain.records import User
from dethpc.state import rows
from dethpc.state.dialects import VALUES, execute_in_chunks

_user = rows.table(User).c
_experiment = rows.table(Experiment).c


class UserName(NamedTuple):
    """``shown``: the name by which people call them."""

    id: int
    name: str
    shown: str


class Owned(Protocol):
    """A row that names the user who created it, and the one as whom its jobs run."""

    owner: str
    user_id: int


def users_of(connection: Connection, owned: Iterable[Owned]) -> dict[int, UserName]:
    """Who created the rows, by id. One who is not there is called as the owner of the jobs."""
    owners = {row.user_id: row.owner for row in owned}
    users = {row[0]: _named(*row) for row in execute_in_chunks(connection, _NAMES, sorted(owners))}
    return {id: users.get(id) or UserName(id, owner, owner) for id, owner in owners.items()}


def users_of_experiments(connection: Connection, experiment_ids: Sequence[int]) -> dict[int, UserName]:
    """Who created each."""
    return {id: _named(*user) for id, *user in execute_in_chunks(connection, _CREATORS, experiment_ids)}


def users_among(
    connection: Connection, names: Collection[str] | None, user_ids: Collection[int] | None
) -> list[int] | None:
    """The ids of users that a list is requested of, by name or by id; None: of everybody."""
    if names is None and user_ids is None:
        return None
    return [*(user_ids or []), *(id for (id,) in execute_in_chunks(connection, _IDS, sorted(set(names or []))))]


def _named(id: int, name: str, display_name: str) -> UserName:
    return UserName(id, name, display_name or name)


_NAMES = select(_user.id, _user.username, _user.display_name).where(_user.id.in_(VALUES))
_IDS = select(_user.id).where(_user.username.in_(VALUES))
_CREATORS = (
    select(_experiment.id, _user.id, _user.username, _user.display_name)
    .join(rows.table(User), _user.id == _experiment.user_id)
    .where(_experiment.id.in_(VALUES))
)
