"""What the databases take, and where they differ in SQL; the package of one that is not used is not loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Connection, Select, Table, bindparam

Value = TypeVar("Value")

_AT_ONCE = 500
"""Values in one IN list: older SQLite takes 999 parameters."""


VALUES: BindParameter[Any] = bindparam("values", expanding=True)
"""What a statement that is made once has for an IN list."""


def chunks(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    """``values`` in pieces that fit into one IN list."""
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


def execute_in_chunks(
    connection: Connection, query: Select[Any], values: Iterable[Any], **others: Any
) -> Iterator[Any]:
    """Rows of ``query``, in which ``VALUES`` stands for any number of ``values``; those of the first ones come first."""
    for chunk in chunks(list(values)):
        yield from connection.execute(query, {"values": chunk, **others})


def insert(table: Table, dialect: str) -> Any:
    """An INSERT that can say what happens on a conflict."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
