"""What the databases take, and where they differ in SQL; the package of one that is not used is not loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Table

Value = TypeVar("Value")

_AT_ONCE = 500
"""Values in one IN list: older SQLite takes 999 parameters."""


def chunks(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    """``values`` in pieces that fit into one IN list."""
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


def insert(table: Table, dialect: str) -> Any:
    """An INSERT that can say what happens on a conflict."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
