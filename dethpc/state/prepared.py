"""Statements that are made once, and take many rows at a time.

SQLAlchemy writes a statement; for each row it then costs several times what the database does. So rows go to the driver itself, in
the form in which the columns' types give them. To SQLite many rows go in one statement: after each, its driver waits for the
interpreter's lock again, and other threads hold that. Statements are for 1, 2, 4, ... rows: few are made, and few are run for any
number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Dialect, Table

_AT_ONCE = 8192
"""Rows that are in the driver's form in memory at once: an experiment that is imported may have a million."""

_MOST_PARAMETERS = 900
"""In one statement: older SQLite takes 999."""

Make = Callable[[Any], Any]


class Insertion:
    """An INSERT into ``table`` of rows that have a value for each of ``names``, as ``statement`` has it."""

    def __init__(self, statement: Any, table: Table, names: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        self._text, self._positional = str(compiled), bool(compiled.positional)
        self._names: tuple[str, ...] = tuple(compiled.positiontup) if self._positional else tuple(names)
        self._values: Callable[[Any], tuple[Any, ...]] = attrgetter(*self._names)
        processors = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in self._names]
        self._processors: list[tuple[int, Make]] = [(at, make) for at, make in enumerate(processors) if make]
        self._most = 1 << (_MOST_PARAMETERS // len(self._names)).bit_length() - 1
        self._texts = {1: self._text}

    def _for(self, count: int) -> str:
        """The statement for as many rows."""
        if count not in self._texts:
            one = f"({', '.join('?' * len(self._names))})"
            head, found, tail = self._text.partition(one)
            assert found, self._text
            self._texts[count] = f"{head}{', '.join([one] * count)}{tail}"
        return self._texts[count]

    def run(self, connection: Connection, rows: Iterable[Any]) -> int:
        """Returns how many rows the database has written."""
        counted, left, written = connection.execution_options(preserve_rowcount=True), iter(rows), 0
        while some := list(islice(left, _AT_ONCE)):
            written += self._write(counted, self._made(some))
        return written

    def _write(self, counted: Connection, made: Sequence[tuple[Any, ...]]) -> int:
        if not self._positional:
            return counted.exec_driver_sql(self._text, [dict(zip(self._names, row)) for row in made]).rowcount
        at = written = 0
        count = self._most
        while at < len(made):
            times = (len(made) - at) // count
            starts = range(at, at + times * count, count)
            if starts:
                many = [tuple(chain.from_iterable(made[start : start + count])) for start in starts]
                written += counted.exec_driver_sql(self._for(count), many).rowcount
                at = starts.stop
            count //= 2
        return written

    def _made(self, rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        made = list(map(self._values, rows))
        if not self._processors or not made:
            return made
        columns: list[Iterable[Any]] = list(zip(*made))
        for at, make in self._processors:
            columns[at] = map(make, columns[at])
        return list(zip(*columns))
