"""Interns equal values of the rows that are kept in memory. More
than a third of what a trial with a run holds is also in its other rows, or in those of the trials beside it."""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Text, select, type_coerce

from dethpc.state import rows
from dethpc.state.columns import Json, decoded

Fact = TypeVar("Fact")


class Shared:
    """Reads as ``rows.read`` does, and gives every text, and every list or mapping, that it has given before, once more. What it
    reads is never to be altered. It remembers all of them: keep it no longer than the reading takes."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._decoded: dict[Any, Any] = {}  # by what the database has

    def read(self, connection: Connection, fact: type[Fact], *where: ColumnElement[bool]) -> list[Fact]:
        """All matching facts, by primary key."""
        table = rows.table(fact)
        columns = [table.c[name] for name in rows.names(fact)]
        takes = [self._value if isinstance(column.type, Json) else self._text for column in columns]
        selection = select(*(type_coerce(c, Text) if isinstance(c.type, Json) else c for c in columns))
        result = connection.execute(selection.where(*where).order_by(*table.primary_key.columns))
        return [fact(*(take(value) for take, value in zip(takes, row, strict=True))) for row in result]

    def _text(self, value: Any) -> Any:
        return self._texts.setdefault(value, value) if type(value) is str else value

    def _value(self, text: Any) -> Any:
        if text not in self._decoded:
            self._decoded[text] = decoded(text)
        return self._decoded[text]
