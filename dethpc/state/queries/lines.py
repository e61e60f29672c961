"""Rows of lists whose JSON is the text that the database holds: an answer takes it in as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, String, select, type_coerce

from dethpc.domain.facts import Experiment
from dethpc.domain.states import State, TaskKind
from dethpc.state import rows
from dethpc.state.columns import Json
from dethpc.state.queries.page import among
from dethpc.state.selections import Selection


class ExperimentLine(NamedTuple):
    """What lists tell of a ``facts.Experiment``. Its configuration and its labels are JSON."""

    id: int
    owner: str
    config: str
    original_config: str
    state: State
    created_at: float
    queue_id: str
    name: str
    description: str
    labels: str
    notes: str
    archived: bool
    project_id: int
    pool: str
    ended_at: float | None
    progress: float
    parent_id: int | None
    reason: str
    kind: TaskKind
    warning: str
    external_id: str


def experiment_lines(connection: Connection, ids: Sequence[int]) -> list[ExperimentLine]:
    """Those that exist, in this order."""
    found = {line.id: line for line in map(ExperimentLine._make, _LINES.rows(connection, values=list(ids)))}
    return [found[id] for id in ids if id in found]


_columns = rows.table(Experiment).c
_LINES = Selection(
    select(
        *(
            type_coerce(_columns[name], String) if isinstance(_columns[name].type, Json) else _columns[name]
            for name in ExperimentLine._fields
        )
    ).where(_columns.id.in_(among("values")))
)
