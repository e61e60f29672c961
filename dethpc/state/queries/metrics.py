"""Reports of metrics: in order of report, by steps, and as histories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    String,
    and_,
    bindparam,
    case,
    func,
    literal,
    select,
    type_coerce,
)

from dethpc.domain.facts import Attempt, Checkpoint, Metric, Trial
from dethpc.domain.states import CheckpointState
from dethpc.state import rows
from dethpc.state.columns import decoded_all
from dethpc.state.dialects import chunks
from dethpc.state.queries.experiments import experiment
from dethpc.state.queries.page import Page, having
from dethpc.state.tables import Best, MetricName

_checkpoint = rows.table(Checkpoint).c
_metric = rows.table(Metric).c
_best = rows.table(Best).c
_name = rows.table(MetricName).c


def metrics_after(
    connection: Connection, trial_id: int, group: str | None, after_id: int, limit: int
) -> list[tuple[int, Metric]]:
    """The next reports of a trial in order of report, each with its id, to go on from. ``group`` None: every group."""
    where = [_metric.trial_id == trial_id, _metric.id > after_id, *([] if group is None else [_metric.group == group])]
    query = rows.query(Metric, *where).add_columns(_metric.id).order_by(_metric.id).limit(limit)
    return [(row[-1], Metric(*row[:-1])) for row in connection.execute(query)]


def metrics_of_experiment(connection: Connection, experiment_id: int) -> list[Metric]:
    """All reports of its trials."""
    trial = rows.table(Trial).c
    return rows.read(
        connection, Metric, _metric.trial_id.in_(select(trial.id).where(trial.experiment_id == experiment_id))
    )


def metrics_of_attempt(connection: Connection, attempt: Attempt, after: int | None, limit: int) -> list[Metric]:
    """The next of its reports that counted by what ``attempt`` says, by their number; ``after``: the last one that is known."""
    of_it = [_metric.run_id == attempt.run_id, _metric.attempt == attempt.number, _metric.seq <= attempt.applied_seq]
    where = of_it if after is None else [*of_it, _metric.seq > after]
    return [Metric(*row) for row in connection.execute(rows.query(Metric, *where).order_by(_metric.seq).limit(limit))]


def last_reports(connection: Connection, trial_id: int, groups: Iterable[str]) -> list[Metric]:
    """The report of each group with the most steps, of groups that have any."""
    reports = []
    for group in groups:
        query = rows.query(Metric, _metric.trial_id == trial_id, _metric.group == group)
        last = connection.execute(query.order_by(_metric.steps_completed.desc(), _metric.id.desc()).limit(1)).first()
        reports += [] if last is None else [Metric(*last)]
    return reports


class Reported(NamedTuple):
    """A report as far as a drawing needs it."""

    trial_id: int
    group: str
    steps_completed: int
    reported_at: float
    metrics: dict[str, Any]


_TRIALS = 50
"""Whose reports are asked for at a time."""


def series(
    connection: Connection,
    trial_ids: Iterable[int],
    groups: Sequence[str],
    first_step: int | None,
    last_step: int | None,
) -> Iterator[Reported]:
    """Reports of trials, by trial, group and steps, for drawing. No groups: all of them."""
    where: list[ColumnElement[bool]] = [_metric.group.in_(groups)] if groups else []
    if first_step is not None:
        where.append(_metric.steps_completed >= first_step)
    if last_step is not None:
        where.append(_metric.steps_completed <= last_step)
    # Both as the driver gives them.
    at, text = type_coerce(_metric.reported_at, Double), type_coerce(_metric.metrics, String)
    columns = (_metric.trial_id, _metric.group, _metric.steps_completed, at, text)
    ordered = select(*columns).order_by(_metric.trial_id, _metric.group, _metric.steps_completed, _metric.id)
    ids = sorted(set(trial_ids))
    for start in range(0, len(ids), _TRIALS):
        query = ordered.where(_metric.trial_id.in_(ids[start : start + _TRIALS]), *where)
        for some in connection.execute(query.execution_options(yield_per=1000)).partitions():
            *values, texts = zip(*some)
            yield from map(Reported._make, zip(*values, decoded_all(texts)))


def workloads(
    connection: Connection,
    trial_id: int,
    *,
    groups: Sequence[str] | None,
    checkpoint_states: Sequence[CheckpointState],
    descending: bool,
    page: Page,
) -> tuple[list[Metric | Checkpoint], int, int]:
    """Reports of metrics and checkpoints of a trial together, by steps: the page, the total, where the page begins.

    ``groups`` None: every group; ``checkpoint_states``: those of the checkpoints. At one step training comes before validation, and
    the checkpoint last.
    """
    none_of_it = literal(False)
    reports = _metric.trial_id == trial_id
    if groups is not None:
        reports = and_(reports, _metric.group.in_(groups) if groups else none_of_it)
    rank = case((_metric.group == "validation", 1), else_=0)
    parts = select(
        _metric.steps_completed.label("steps"), rank.label("rank"), _metric.id.label("id"), literal("").label("uuid")
    ).where(reports)
    written = and_(_checkpoint.trial_id == trial_id, _checkpoint.state.in_(checkpoint_states))
    both = parts.union_all(
        select(_checkpoint.steps_completed, literal(2), literal(0), _checkpoint.uuid).where(written)
    ).subquery()
    total = connection.scalar(select(func.count()).select_from(both)) or 0
    begin = page.begin(total)
    keys = [both.c.steps, both.c.rank, both.c.id, both.c.uuid]
    ordered = select(both.c.id, both.c.uuid).order_by(*(key.desc() if descending else key for key in keys))
    chosen = connection.execute(ordered.offset(begin).limit(page.limit)).all()
    reports_by_id: dict[int, Metric] = {}
    for ids in chunks([id for id, uuid in chosen if not uuid]):
        query = rows.query(Metric, _metric.id.in_(ids)).add_columns(_metric.id)
        reports_by_id.update((row[-1], Metric(*row[:-1])) for row in connection.execute(query))
    uuids = [uuid for _, uuid in chosen if uuid]
    checkpoints_by_uuid = {item.uuid: item for item in having(connection, Checkpoint, _checkpoint.uuid, uuids)}
    return [checkpoints_by_uuid[uuid] if uuid else reports_by_id[id] for id, uuid in chosen], total, begin


def posted(connection: Connection, run_id: str, attempt: int) -> int:
    """The number of the last report of the attempt that did not come from its chief; 0: there is none."""
    return -min(0, connection.scalar(_LAST_POSTED, {"run": run_id, "number": attempt}) or 0)


_LAST_POSTED = select(func.min(_metric.seq)).where(
    _metric.run_id == bindparam("run"), _metric.attempt == bindparam("number")
)


def validation_history(connection: Connection, experiment_id: int) -> list[tuple[int, float, float]]:
    """(trial id, time, value) of each validation that was the best of the experiment until then."""
    of = experiment(connection, experiment_id)
    better = _best.value.desc() if of.smaller_is_better else _best.value.asc()  # of the same instant the best came last
    query = select(_best.trial_id, _best.reported_at, _best.value).where(_best.experiment_id == experiment_id)
    return [(trial, at, value) for trial, at, value in connection.execute(query.order_by(_best.reported_at, better))]


def metric_names(connection: Connection, experiment_ids: Sequence[int]) -> list[tuple[str, str]]:
    """(group, name) of every metric reported, sorted."""
    query = select(_name.group, _name.name).where(_name.experiment_id.in_(experiment_ids)).distinct()
    return sorted((group, name) for group, name in connection.execute(query))
