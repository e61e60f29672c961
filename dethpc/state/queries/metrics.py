"""Reports of metrics: in order of report, by steps, and as histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, and_, case, func, literal, select

from dethpc.domain.facts import Checkpoint, Metric, Trial
from dethpc.domain.states import CheckpointState
from dethpc.state import rows
from dethpc.state.queries.experiments import experiment
from dethpc.state.queries.page import Page, chunks, having
from dethpc.state.summaries import Summary

_trial = rows.table(Trial).c
_checkpoint = rows.table(Checkpoint).c
_metric = rows.table(Metric).c
_summary = rows.table(Summary).c


def metrics_after(
    connection: Connection, trial_id: int, group: str | None, after_id: int, limit: int
) -> list[tuple[int, Metric]]:
    """The next reports of a trial in order of report, each with its id, to go on from. ``group`` None: every group."""
    where = [_metric.trial_id == trial_id, _metric.id > after_id, *([] if group is None else [_metric.group == group])]
    query = rows.query(Metric, *where).add_columns(_metric.id).order_by(_metric.id).limit(limit)
    return [(row[-1], Metric(*row[:-1])) for row in connection.execute(query)]


def series(
    connection: Connection, trial_id: int, groups: Sequence[str], first_step: int | None, last_step: int | None
) -> Iterator[Metric]:
    """Reports of a trial by steps, for drawing. No groups: all of them."""
    where = [_metric.trial_id == trial_id]
    if groups:
        where.append(_metric.group.in_(groups))
    if first_step is not None:
        where.append(_metric.steps_completed >= first_step)
    if last_step is not None:
        where.append(_metric.steps_completed <= last_step)
    query = rows.query(Metric, *where).order_by(_metric.group, _metric.steps_completed, _metric.id)
    for row in connection.execution_options(yield_per=1000).execute(query):
        yield Metric(*row)


def workloads(
    connection: Connection,
    trial_id: int,
    *,
    groups: Sequence[str] | None,
    with_checkpoints: bool,
    deleted: bool,
    descending: bool,
    page: Page,
) -> tuple[list[Metric | Checkpoint], int, int]:
    """Reports of metrics and checkpoints of a trial together, by steps: the page, the total, where the page begins.

    ``groups`` None: every group. At one step training comes before validation, and the checkpoint last.
    """
    none_of_it = literal(False)
    reports = _metric.trial_id == trial_id
    if groups is not None:
        reports = and_(reports, _metric.group.in_(groups) if groups else none_of_it)
    rank = case((_metric.group == "validation", 1), else_=0)
    parts = select(
        _metric.steps_completed.label("steps"), rank.label("rank"), _metric.id.label("id"), literal("").label("uuid")
    ).where(reports)
    written = and_(_checkpoint.trial_id == trial_id, literal(with_checkpoints))
    if not deleted:
        written = and_(written, _checkpoint.state != CheckpointState.DELETED)
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
    own = _metric.run_id == run_id, _metric.attempt == attempt
    return -min(0, connection.scalar(select(func.min(_metric.seq)).where(*own)) or 0)


def validation_history(connection: Connection, experiment_id: int) -> list[tuple[int, float, float]]:
    """(trial id, time, value) of each validation that was the best of the experiment until then."""
    of = experiment(connection, experiment_id)
    name, smaller = of.metric, of.smaller_is_better
    of_experiment = select(_trial.id).where(_trial.experiment_id == experiment_id)
    query = (
        select(_metric.trial_id, _metric.reported_at, _metric.metrics)
        .where(_metric.trial_id.in_(of_experiment), _metric.group == "validation")
        .order_by(_metric.reported_at, _metric.id)
    )
    history: list[tuple[int, float, float]] = []
    for trial_id, at, metrics in connection.execution_options(yield_per=1000).execute(query):
        value = metrics.get(name)
        if not isinstance(value, (int, float)) or value != value:
            continue
        if not history or (value < history[-1][2] if smaller else value > history[-1][2]):
            history.append((trial_id, at, float(value)))
    return history


def metric_names(connection: Connection, experiment_ids: Sequence[int]) -> list[tuple[str, str]]:
    """(group, name) of every metric reported, sorted."""
    of_experiments = select(_trial.id).where(_trial.experiment_id.in_(experiment_ids))
    query = select(_summary.group, _summary.name).where(_summary.trial_id.in_(of_experiments)).distinct()
    return sorted((group, name) for group, name in connection.execute(query))
