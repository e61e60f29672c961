"""SELECTs that are written once and run on the driver, for lists: their rows are plain tuples.

To run a statement that it knows, and to make a page's rows of what the driver gives, takes SQLAlchemy longer than it takes the
database to find them. A list of values in a statement has 1, 2, 4, ... places, and its last value fills those that are left: few
texts are made, and none for each page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import Connection, Dialect, Select
from sqlalchemy.exc import DBAPIError

_AT_ONCE = 512
"""Values in one list: older SQLite takes 999 parameters."""

_PIECE = 1000
"""Rows that are in memory at once, of those that come in pieces."""

Make = Callable[[Any], Any]


class _Place(NamedTuple):
    """Where a statement takes a value that it is given: number ``at`` of a list, or the value itself."""

    name: str
    at: int | None


class Selection:
    """``query`` may have parameters; one of them, with ``expanding``, may be a list of values."""

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._made: dict[tuple[str, int], _Statement] = {}

    def rows(self, connection: Connection, **values: Any) -> list[tuple[Any, ...]]:
        """All rows; of a list of many values, those of the first ones come first. Raises what SQLAlchemy does."""
        listed = next((name for name, value in values.items() if isinstance(value, list)), None)
        if listed is None:
            return self._for(connection.dialect, values, 0).rows(connection, values)
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(values[listed]), _AT_ONCE):
            some = values[listed][start : start + _AT_ONCE]
            places = 1 << (len(some) - 1).bit_length()
            given = {**values, listed: [*some, *some[-1:] * (places - len(some))]}
            found += self._for(connection.dialect, given, places).rows(connection, given)
        return found

    def each(self, connection: Connection, **values: Any) -> Iterator[list[tuple[Any, ...]]]:
        """Rows in pieces, of a query without a list. Raises what SQLAlchemy does."""
        return self._for(connection.dialect, values, 0).each(connection, values)

    def _for(self, dialect: Dialect, values: dict[str, Any], places: int) -> _Statement:
        made = self._made.get((dialect.name, places))
        if made is None:
            made = self._made[dialect.name, places] = _Statement(self._query, dialect, values)
        return made


class _Statement:
    """The text for one database and one length of its list."""

    def __init__(self, query: Select[Any], dialect: Dialect, values: dict[str, Any]) -> None:
        places = {
            name: [_Place(name, at) for at in range(len(value))] if isinstance(value, list) else _Place(name, None)
            for name, value in values.items()
        }
        compiled: Any = query.compile(dialect=dialect)
        expanded = compiled.construct_expanded_state(places)
        self._text, self._positional = expanded.statement, bool(compiled.positional)
        self._names: list[str] = list(expanded.positiontup if self._positional else expanded.parameters)
        self._given = [expanded.parameters[name] for name in self._names]
        self._binds: list[Make | None] = [expanded.processors.get(name) for name in self._names]
        types = [column.type for column in query.selected_columns]
        results = [each.dialect_impl(dialect).result_processor(dialect, None) for each in types]
        self._results: list[tuple[int, Make]] = [(at, make) for at, make in enumerate(results) if make]

    def rows(self, connection: Connection, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with _cursor(connection) as cursor:
            self._run(cursor, values)
            found = cursor.fetchall()
        return self._read(found)

    def each(self, connection: Connection, values: dict[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
        with _cursor(connection) as cursor:
            self._run(cursor, values)
            while some := cursor.fetchmany(_PIECE):
                yield self._read(some)

    def _run(self, cursor: Any, values: dict[str, Any]) -> None:
        made = [
            value if bind is None else bind(value)
            for value, bind in zip((_value(given, values) for given in self._given), self._binds)
        ]
        cursor.execute(self._text, made if self._positional else dict(zip(self._names, made)))

    def _read(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        if not self._results or not rows:
            return list(rows)
        columns: list[Iterable[Any]] = list(zip(*rows))
        for at, make in self._results:
            columns[at] = map(make, columns[at])
        return list(zip(*columns))


def _value(given: Any, values: dict[str, Any]) -> Any:
    """What stands in a place of the statement: a constant of its own, or what it is given."""
    if type(given) is not _Place:
        return given
    value = values[given.name]
    return value if given.at is None else value[given.at]


@contextmanager
def _cursor(connection: Connection) -> Iterator[Any]:
    """The driver's own. Raises what SQLAlchemy does."""
    dialect, cursor = connection.dialect, connection.connection.cursor()
    failure: Any = dialect.loaded_dbapi.Error
    try:
        yield cursor
    except failure as error:
        lost = dialect.is_disconnect(error, connection.connection, cursor)
        if lost:
            connection.invalidate(error)
        hidden: Any = {"hide_parameters": True, "connection_invalidated": lost, "dialect": dialect}
        raise DBAPIError.instance(None, None, error, failure, **hidden) from error
    finally:
        cursor.close()
