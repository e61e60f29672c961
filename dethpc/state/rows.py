"""Facts to rows and back, for every noun in one place, and the one way in which rows are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, delete, or_, select

from dethpc.domain import facts
from dethpc.domain.facts import Attempt, Checkpoint, Metric, Row, Run, SearchNote, Trial
from dethpc.domain.records import KEYS, Record, WebhookDelivery
from dethpc.domain.states import AttemptState, RunState
from dethpc.errors import StoreError
from dethpc.state import dialects, sums, tables
from dethpc.state.sums import Recent
from dethpc.state.tables import Spent, SpentSum, StoredSum, Summary

Fact = TypeVar("Fact")

FACTS: tuple[type[Any], ...] = (*facts.KEYS, Summary)

_BATCH = 8192
"""Rows that are in memory as parameters at once: an imported experiment may have a million."""


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


def first(connection: Connection, fact: type[Fact], query: Select[Any], **values: Any) -> Fact | None:
    """The first that a ``query`` of this fact finds; None: there is none."""
    row = connection.execute(query, values).first()
    return None if row is None else fact(*row)


def find(connection: Connection, fact: type[Fact], /, **fields: Any) -> list[Fact]:
    """Those whose fields have these values, by primary key."""
    return [fact(*row) for row in connection.execute(_with(cast(Any, fact), *fields), fields)]


@cache
def _with(fact: type[Any], *names: str) -> Select[Any]:
    """Made once: making it takes several times as long as running it."""
    columns, key = table(fact).c, table(fact).primary_key.columns
    return query(fact, *(columns[name] == bindparam(name) for name in names)).order_by(*key)


def stream(connection: Connection, fact: type[Fact], *where: ColumnElement[bool]) -> Iterator[Fact]:
    """As ``read``, a thousand in memory at once."""
    ordered = query(fact, *where).order_by(*table(fact).primary_key.columns).execution_options(yield_per=1000)
    with connection.execute(ordered) as result:
        for row in result:
            yield fact(*row)


def write(connection: Connection, rows: Iterable[Row | Record], recent: Recent | None = None) -> None:
    """Write rows as ``ports.Store.commit`` promises, without the commit. ``recent`` is the writer's; none when it writes once.

    Tables do not depend on each other, so rows are grouped by table and the last of a key is written alone.
    """
    by_fact: dict[type[Any], list[Any]] = {}
    for row in rows:
        by_fact.setdefault(type(row), []).append(row)
    _add(connection, WebhookDelivery, by_fact.pop(WebhookDelivery, ()))
    for fact, group in by_fact.items():
        if fact not in FACTS and fact not in KEYS:
            raise StoreError(f"{fact.__name__} is not a fact that the store keeps")
        if fact is Checkpoint:
            _follow_checkpoints(connection, group)
        if fact not in facts.ADDED_ONLY:
            upsert(connection, fact, group)
    over = {run.id for run in by_fact.get(Run, ()) if run.state is RunState.ENDED}
    over |= {attempt.run_id for attempt in by_fact.get(Attempt, ()) if attempt.state is AttemptState.ENDED}
    for some in dialects.chunks(sorted(over)):
        spent, spent_sums = sums.follow_runs(connection, some)
        upsert(connection, Spent, spent)
        upsert(connection, SpentSum, spent_sums)
    recent = Recent() if recent is None else recent
    _add(connection, SearchNote, by_fact.get(SearchNote, ()))
    _void(connection, by_fact.get(Attempt, ()), recent)
    _add_metrics(connection, by_fact.get(Metric, ()), recent)
    for trial in by_fact.get(Trial, ()):
        if trial.state.terminal:
            recent.take(trial.id)
    recent.whole.difference_update(run.id for run in by_fact.get(Run, ()) if run.state is RunState.ENDED)


def _follow_checkpoints(connection: Connection, checkpoints: Iterable[Checkpoint]) -> None:
    last = {checkpoint.uuid: checkpoint for checkpoint in checkpoints}
    for some in dialects.chunks(sorted(last)):
        upsert(connection, StoredSum, sums.follow_checkpoints(connection, [last[uuid] for uuid in some]))


def upsert(connection: Connection, fact: type[Any], rows: Iterable[Any]) -> None:
    """Put rows in the place of those with the same key; of several with one key the last counts."""
    key = attrgetter(*(column.name for column in table(fact).primary_key))
    last = {key(row): row for row in rows}
    if last:
        _execute(connection, _upsert(table(fact), connection.dialect.name), fact, list(last.values()))


def drop(connection: Connection, kind: type[Any], key: Sequence[Any]) -> None:
    """Delete the row with the key, if there is one."""
    columns = table(kind).primary_key.columns
    connection.execute(delete(table(kind)).where(*(column == value for column, value in zip(columns, key))))


def _add(connection: Connection, fact: type[Any], rows: Sequence[Any]) -> int:
    """Insert rows whose key is new; returns how many were."""
    return _execute(connection, _add_new(table(fact), connection.dialect.name), fact, rows)


def _add_metrics(connection: Connection, metrics: Sequence[Metric], recent: Recent) -> None:
    if not metrics:
        return
    runs = {metric.run_id for metric in metrics}
    void = _void_after(connection, runs - recent.whole)
    recent.whole |= runs - {run_id for run_id, _ in void}
    counting = [m for m in metrics if _counts(connection, m, void.get((m.run_id, m.attempt)))] if void else metrics
    added = _add(connection, Metric, counting)
    by_trial: dict[int, list[Metric]] = {}
    for metric in counting:
        by_trial.setdefault(metric.trial_id, []).append(metric)
    if added == len(counting):
        _fold(connection, by_trial, recent)
    else:  # some were there already, and databases in use do not say which
        _summarise_anew(connection, by_trial, recent)
    sums.follow_validations(connection, counting)


def _fold(connection: Connection, by_trial: Mapping[int, Sequence[Metric]], recent: Recent) -> None:
    summaries = {trial: of_trial for trial in by_trial if (of_trial := recent.take(trial)) is not None}
    unknown = by_trial.keys() - summaries.keys()
    summaries.update((trial, {}) for trial in unknown)
    for summary in _summaries_of(connection, unknown):
        summaries[summary.trial_id][summary.key] = summary
    changed: list[Summary] = []
    new: set[tuple[int, str, str]] = set()
    for trial, metrics in by_trial.items():
        before = len(summaries[trial])
        try:
            changed += sums.fold(summaries[trial], metrics)
        except TypeError as error:
            raise StoreError(str(error)) from error
        added = islice(summaries[trial], before, None)  # a mapping keeps its order
        new.update((metrics[0].experiment_id, group, name) for _, group, name in added)
    upsert(connection, Summary, changed)
    sums.add_metric_names(connection, new)
    for trial, of_trial in summaries.items():
        recent.keep(trial, of_trial)


def _void(connection: Connection, attempts: Iterable[Attempt], recent: Recent) -> None:
    """Delete metrics that no longer count. Those that arrive later are left out by ``_add_metrics``."""
    columns = table(Metric).c
    trials: set[int] = set()
    voided: dict[tuple[str, int], set[int]] = {}  # attempts, each with the experiments whose reports it lost
    for attempt in attempts:
        if attempt.void_after is not None:
            recent.whole.discard(attempt.run_id)
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
            lost = select(columns.trial_id, columns.experiment_id).where(*beyond).distinct()
            for trial_id, experiment_id in connection.execute(lost):
                trials.add(trial_id)
                voided.setdefault((attempt.run_id, attempt.number), set()).add(experiment_id)
            connection.execute(delete(table(Metric)).where(*beyond))
    _summarise_anew(connection, trials, recent)
    for (run_id, number), experiments in voided.items():
        sums.mend_history(connection, run_id, number, experiments)


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
    return {
        (run_id, number): after
        for run_id, number, after in dialects.execute_in_chunks(connection, _VOIDED, sorted(run_ids))
    }


def _voided() -> Select[Any]:
    columns = table(Attempt).c
    return select(columns.run_id, columns.number, columns.void_after).where(
        columns.run_id.in_(dialects.VALUES), columns.void_after.is_not(None)
    )


_VOIDED = _voided()
_SUMMARIES = query(Summary, table(Summary).c.trial_id.in_(dialects.VALUES))


def _summarise_anew(connection: Connection, trials: Iterable[int], recent: Recent) -> None:
    for trial in trials:
        recent.take(trial)
        connection.execute(delete(table(Summary)).where(table(Summary).c.trial_id == trial))
        remaining = query(Metric, table(Metric).c.trial_id == trial).order_by(table(Metric).c.id)
        _fold(connection, {trial: [Metric(*row) for row in connection.execute(remaining)]}, recent)


def _summaries_of(connection: Connection, trials: Iterable[int]) -> Iterator[Summary]:
    return (Summary(*row) for row in dialects.execute_in_chunks(connection, _SUMMARIES, sorted(trials)))


def _execute(connection: Connection, statement: Any, fact: type[Any], rows: Sequence[Any]) -> int:
    """Execute the INSERT for all rows; returns how many rows the database wrote."""
    counted = connection.execution_options(preserve_rowcount=True)
    columns, written = names(fact), 0
    values = attrgetter(*columns)
    for start in range(0, len(rows), _BATCH):
        batch = [dict(zip(columns, values(row))) for row in rows[start : start + _BATCH]]
        written += counted.execute(statement, batch).rowcount
    return written


# Making a statement takes longer than executing it; SQLAlchemy keeps what it compiles each to.
@cache
def _add_new(into: Table, dialect: str) -> Any:
    return dialects.insert(into, dialect).on_conflict_do_nothing()


@cache
def _upsert(into: Table, dialect: str) -> Any:
    insert, key = dialects.insert(into, dialect), into.primary_key
    changes = {name: insert.excluded[name] for name in into.columns.keys() if name not in key.columns}
    return insert.on_conflict_do_update(index_elements=list(key.columns), set_=changes)
