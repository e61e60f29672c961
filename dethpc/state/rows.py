"""Facts to rows and back, for every noun in one place, and the one way in which rows are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, delete, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from dethpc.domain import facts
from dethpc.domain.facts import Attempt, Checkpoint, Metric, Row, SearchNote
from dethpc.errors import StoreError
from dethpc.state import summaries, tables
from dethpc.state.summaries import Summary

Fact = TypeVar("Fact")

FACTS: tuple[type[Any], ...] = (*facts.KEYS, Summary)

_AT_ONCE = 500
"""Values in one IN list: older SQLite takes 999 parameters."""


_NAMES: dict[type[Any], tuple[str, ...]] = {fact: tuple(field.name for field in fields(fact)) for fact in tables.KEYS}


def table(fact: type[Any]) -> Table:
    """The table of a fact."""
    return tables.TABLES[fact]


def names(fact: type[Any]) -> tuple[str, ...]:
    """Columns of a fact, in the order of its fields."""
    return _NAMES[fact]


def query(fact: type[Any], *where: ColumnElement[bool]) -> Select[Any]:
    """A query whose rows are the positional arguments of ``fact``."""
    columns = table(fact).c
    return select(*(columns[name] for name in names(fact))).where(*where)


def read(connection: Connection, fact: type[Fact], *where: ColumnElement[bool]) -> list[Fact]:
    """All matching facts, by primary key."""
    ordered = query(fact, *where).order_by(*table(fact).primary_key.columns)
    return [fact(*row) for row in connection.execute(ordered)]


def write(connection: Connection, rows: Iterable[Row]) -> None:
    """Write rows as ``ports.Store.commit`` promises, without the commit.

    Tables do not depend on each other, so rows are grouped by table and the last of a key is written alone.
    """
    by_fact: dict[type[Any], list[Any]] = {}
    for row in rows:
        by_fact.setdefault(type(row), []).append(row)
    for fact, group in by_fact.items():
        if fact not in FACTS:
            raise StoreError(f"{fact.__name__} is not a fact that the store keeps")
        if fact not in facts.ADDED_ONLY:
            upsert(connection, fact, group)
    _add(connection, SearchNote, by_fact.get(SearchNote, ()))
    _void(connection, by_fact.get(Attempt, ()))
    _add_metrics(connection, by_fact.get(Metric, ()))


def upsert(connection: Connection, fact: type[Any], rows: Iterable[Any]) -> None:
    """Put rows in the place of those with the same key; of several with one key the last counts."""
    key = attrgetter(*(column.name for column in table(fact).primary_key))
    last = {key(row): row for row in rows}
    if last:
        connection.execute(_upsert(fact, connection.dialect.name), _parameters(fact, last.values()))


def drop(connection: Connection, kind: type[Any], key: Sequence[Any]) -> None:
    """Delete the row with the key, if there is one."""
    columns = table(kind).primary_key.columns
    connection.execute(delete(table(kind)).where(*(column == value for column, value in zip(columns, key))))


def _add(connection: Connection, fact: type[Any], rows: Sequence[Any]) -> int:
    """Insert rows whose key is new; returns how many were."""
    if not rows:
        return 0
    done = connection.execution_options(preserve_rowcount=True).execute(
        _insert(fact, connection.dialect.name).on_conflict_do_nothing(), _parameters(fact, rows)
    )
    return done.rowcount


def _add_metrics(connection: Connection, metrics: Sequence[Metric]) -> None:
    if not metrics:
        return
    void = _void_after(connection, {metric.run_id for metric in metrics})
    counting = [m for m in metrics if _counts(connection, m, void.get((m.run_id, m.attempt)))]
    added = _add(connection, Metric, counting)
    trials = {metric.trial_id for metric in counting}
    if added == len(counting):
        known = {summary.key: summary for summary in _read_in(connection, Summary, "trial_id", trials)}
        _fold(connection, known, counting)
    else:  # some were there already, and databases in use do not say which
        _summarise_anew(connection, trials)


def _fold(connection: Connection, known: dict[summaries.Key, Summary], metrics: Sequence[Metric]) -> None:
    try:
        summaries.fold(known, metrics)
    except TypeError as error:
        raise StoreError(str(error)) from error
    touched = {(m.trial_id, m.group, name) for m in metrics for name in m.metrics}
    upsert(connection, Summary, (known[key] for key in touched))


def _void(connection: Connection, attempts: Iterable[Attempt]) -> None:
    """Delete metrics that no longer count. Those that arrive later are left out by ``_add_metrics``."""
    columns = table(Metric).c
    trials: set[int] = set()
    for attempt in attempts:
        if attempt.void_after is not None:
            beyond = (
                columns.run_id == attempt.run_id,
                columns.attempt == attempt.number,
                or_(
                    columns.seq > attempt.void_after,
                    and_(
                        columns.seq < 0,
                        columns.steps_completed
                        > kept_steps(connection, attempt.run_id, attempt.number, attempt.void_after),
                    ),
                ),
            )
            trials.update(connection.scalars(select(columns.trial_id).where(*beyond).distinct()))
            connection.execute(delete(table(Metric)).where(*beyond))
    _summarise_anew(connection, trials)


def _counts(connection: Connection, metric: Metric, void_after: int | None) -> bool:
    if void_after is None:
        return True
    if metric.seq >= 0:
        return metric.seq <= void_after
    return metric.steps_completed <= kept_steps(connection, metric.run_id, metric.attempt, void_after)


def kept_steps(connection: Connection, run_id: str, number: int, void_after: int) -> int:
    """Up to how many steps the attempt's metrics that did not come from its chief count: as many as the checkpoint had that a later
    attempt went on from; -1: none of them."""
    columns = table(Checkpoint).c
    own = columns.run_id == run_id, columns.attempt == number, columns.seq == void_after
    steps = connection.scalar(select(columns.steps_completed).where(*own))
    return -1 if steps is None else int(steps)


def _void_after(connection: Connection, run_ids: Iterable[str]) -> dict[tuple[str, int], int]:
    columns = table(Attempt).c
    asked = select(columns.run_id, columns.number, columns.void_after).where(
        columns.run_id.in_(bindparam("ids", expanding=True)), columns.void_after.is_not(None)
    )
    return {
        (run_id, number): after
        for ids in _chunks(run_ids)
        for run_id, number, after in connection.execute(asked, {"ids": ids})
    }


def _summarise_anew(connection: Connection, trials: Iterable[int]) -> None:
    for trial in trials:
        connection.execute(delete(table(Summary)).where(table(Summary).c.trial_id == trial))
        left = query(Metric, table(Metric).c.trial_id == trial).order_by(table(Metric).c.id)
        _fold(connection, {}, [Metric(*row) for row in connection.execute(left)])


def _read_in(connection: Connection, fact: type[Fact], column: str, values: Iterable[Any]) -> Iterator[Fact]:
    asked = query(fact, table(fact).c[column].in_(bindparam("values", expanding=True)))
    for chunk in _chunks(values):
        for row in connection.execute(asked, {"values": chunk}):
            yield fact(*row)


def _chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    ordered = sorted(values)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]


def _parameters(fact: type[Any], rows: Iterable[Any]) -> list[dict[str, Any]]:
    columns = names(fact)
    values: Callable[[Any], tuple[Any, ...]] = attrgetter(*columns)
    return [dict(zip(columns, values(row))) for row in rows]


def _insert(fact: type[Any], dialect: str) -> Any:
    return (postgresql if dialect == "postgresql" else sqlite).insert(table(fact))


_upserts: dict[tuple[type[Any], str], Any] = {}  # building one takes longer than running it


def _upsert(fact: type[Any], dialect: str) -> Any:
    statement = _upserts.get((fact, dialect))
    if statement is None:
        insert, key = _insert(fact, dialect), table(fact).primary_key
        changes = {name: insert.excluded[name] for name in names(fact) if name not in key.columns}
        statement = insert.on_conflict_do_update(index_elements=list(key.columns), set_=changes)
        _upserts[fact, dialect] = statement
    return statement
