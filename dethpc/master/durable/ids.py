"""An id is given once: a database that is older than the files on shared_fs is not served.

A run is written into the database before its directory is made, and an experiment before its change log. So files of which the
database knows nothing mean that it was deleted, lost its ``-wal`` file, or is an older copy. To start with it would give ids again,
and take what is in old run directories for results of new trials. A database without users is new: to start with it where a
file has some would empty that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from dethpc.domain.facts import Experiment, Run
from dethpc.domain.records import User
from dethpc.errors import Refused
from dethpc.master.durable.row_file import RowFile
from dethpc.rundir import archives
from dethpc.rundir.files import names as names_in
from dethpc.rundir.files import read_json
from dethpc.rundir.home import Home
from dethpc.state import SqlStore, rows

RUN_OF_A_TRIAL = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_RUN_OF_A_TASK = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+")
_NAMED = 3
"""How many of each kind a message names."""


@dataclass(frozen=True, slots=True)
class Ids:
    experiments: frozenset[int]
    runs: frozenset[str]

    def __sub__(self, other: Ids) -> Ids:
        return Ids(self.experiments - other.experiments, self.runs - other.runs)

    @property
    def next(self) -> tuple[int, int]:
        """The first ids of an experiment and of a trial that are above all of these."""
        parsed = [RUN_OF_A_TRIAL.fullmatch(run) for run in self.runs]
        experiments = {*self.experiments, *(int(match[1]) for match in parsed if match)}
        return max(experiments, default=0) + 1, max((int(match[2]) for match in parsed if match), default=0) + 1


def in_files(home: Home) -> Ids:
    """Those that have a directory, or are folded. Runs that were rendered without a master have none of these names."""
    return Ids(
        frozenset(int(name) for name in names_in(home.experiments) if name.isascii() and name.isdigit()),
        frozenset(run for name in names_in(home.runs) for run in _runs(name)),
    )


def rendered(names: Iterable[str]) -> set[str]:
    """Those of the names below ``runs`` that are of runs which were rendered without a master, or belong to no trial."""
    return {name for name in names if not archives.belongs_to_trial(name)}


def _runs(name: str) -> Sequence[str]:
    """The runs of trials and of other tasks that have files in what is called so."""
    is_run = RUN_OF_A_TRIAL.fullmatch(name) or _RUN_OF_A_TASK.fullmatch(name)
    return [name] if is_run else archives.runs_of(name)


def in_database(connection: Connection) -> Ids:
    experiments = connection.scalars(select(rows.table(Experiment).c.id))
    return Ids(frozenset(experiments), frozenset(connection.scalars(select(rows.table(Run).c.id))))


def given_up(home: Home) -> Ids:
    """Those whose files the last rebuild found but could make nothing of. Raises RunDirError."""
    losses = read_json(home.losses) or {}
    return Ids(frozenset(losses.get("experiments") or ()), frozenset(losses.get("runs") or ()))


def check(home: Home, store: SqlStore) -> None:
    """Let ``store`` give no id that files have. Raises Refused when it does not know of some of them."""
    files = in_files(home)
    with store.read() as connection:
        unknown = files - in_database(connection) - given_up(home)
        is_new = connection.scalar(select(func.count()).select_from(rows.table(User))) == 0
    what = [*_id_list("experiment", sorted(unknown.experiments)), *_id_list("run", sorted(unknown.runs))]
    if not what and is_new:
        users = {row.username for row in RowFile(home.records).rows() if isinstance(row, User)}
        what = _id_list("user", sorted(users))
    if what:
        raise knows_less(home, what)
    store.next_ids = files.next


def knows_less(home: Home, what: Sequence[str]) -> Refused:
    """The refusal to serve a database that does not know of ``what``."""
    return Refused(
        f"the database is older than the files in {home.root}: it does not know {' and '.join(what)}. It was deleted, lost its "
        "-wal file, or is an older copy. Serving it would reuse ids. Recreate it from the files: det master rebuild"
    )


def _id_list(noun: str, unknown: Sequence[object]) -> list[str]:
    if not unknown:
        return []
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    return [f"{noun}{'s' if len(unknown) > 1 else ''} {', '.join(map(str, unknown[:_NAMED]))}{more}"]
