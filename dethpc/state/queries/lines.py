"""Rows of lists whose JSON is the text that the database holds: an answer takes it in as it is."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, String, select, type_coerce

from dethpc.domain.facts import Experiment
from dethpc.state import rows
from dethpc.state.columns import Json
from dethpc.state.queries.page import among
from dethpc.state.selections import Selection


def experiment_lines(connection: Connection, ids: Sequence[int]) -> list[Any]:
    """Those that exist, in this order: as ``facts.Experiment``, but for its JSON."""
    selection, line = _lines(Experiment, "id")
    found = {row.id: row for row in map(line, selection.rows(connection, values=list(ids)))}
    return [found[id] for id in ids if id in found]


@cache
def _lines(fact: type[Any], key: str) -> tuple[Selection, Any]:
    """Rows by a key, and what makes a line of each."""
    columns = rows.table(fact).c
    told = [
        type_coerce(columns[name], String) if isinstance(columns[name].type, Json) else columns[name]
        for name in rows.names(fact)
    ]
    line = namedtuple(f"{fact.__name__}Line", rows.names(fact))  # type: ignore[misc]
    return Selection(select(*told).where(columns[key].in_(among("values")))), line._make
