"""Trials: lists, and the figures that their rows do not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal, select

from dethpc.domain.facts import Checkpoint, Experiment, Metric, Run, Task, Trial
from dethpc.domain.states import CheckpointState, RunState, State
from dethpc.errors import NotFound
from dethpc.state import rows
from dethpc.state.queries.checkpoints import sizes_of
from dethpc.state.queries.page import Order, Page, by_value, chunks, cut, having, in_states, one, sort_key, total_of
from dethpc.state.queries.tasks import of_trial
from dethpc.state.summaries import Summary

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_other = rows.table(Trial).alias().c
_run = rows.table(Run).c
_task = rows.table(Task).c
_checkpoint = rows.table(Checkpoint).c
_metric = rows.table(Metric).c
_summary = rows.table(Summary).c


def trial(connection: Connection, trial_id: int) -> Trial:
    """Raises: NotFound, also where its experiment was deleted."""
    found = one(connection, Trial, _trial.id == trial_id, f"trial {trial_id}")
    if connection.scalar(select(_experiment.state).where(_experiment.id == found.experiment_id)) is State.DELETED:
        raise NotFound(f"trial {trial_id} not found: its experiment {found.experiment_id} was deleted")
    return found


def trial_of_external_id(connection: Connection, experiment_id: int, external_id: str) -> Trial | None:
    """The one of the experiment that scripts elsewhere call so."""
    query = rows.query(Trial, _trial.experiment_id == experiment_id, _trial.external_id == external_id)
    row = connection.execute(query).first()
    return None if row is None else Trial(*row)


def trials_of_experiment(connection: Connection, experiment_id: int) -> list[Trial]:
    """All of them, by index."""
    found = connection.execute(rows.query(Trial, _trial.experiment_id == experiment_id).order_by(_trial.index))
    return [Trial(*row) for row in found]


def trials_by_id(connection: Connection, trial_ids: Sequence[int]) -> list[Trial]:
    """Those that exist, in the order asked for."""
    found = {item.id: item for item in having(connection, Trial, _trial.id, trial_ids)}
    return [found[id] for id in trial_ids if id in found]


def trials_that_ended(connection: Connection, experiment_id: int, after: float, until: float) -> list[int]:
    """Ids of those that ended between these times."""
    query = select(_trial.id).where(
        _trial.experiment_id == experiment_id, _trial.ended_at > after, _trial.ended_at <= until
    )
    return list(connection.scalars(query.order_by(_trial.id)))


def trial_is_over(connection: Connection, trial_id: int) -> bool:
    """Whether nothing of the trial will be written any more: it has ended and so have its runs."""
    state = connection.scalar(select(_trial.state).where(_trial.id == trial_id))
    live = select(_run.id).where(_run.task_id.in_(of_trial(trial_id)), _run.state != RunState.ENDED).limit(1)
    return state is None or (state.terminal and connection.scalar(live) is None)


def states_of_trials(connection: Connection, experiment_id: int) -> dict[str, int]:
    """How many trials are in each state."""
    query = select(_trial.state, func.count()).where(_trial.experiment_id == experiment_id).group_by(_trial.state)
    return {state.value: count for state, count in connection.execute(query)}


def best_trials(connection: Connection, experiment_ids: Sequence[int]) -> dict[int, tuple[int, float]]:
    """The best trial of each experiment that has one, and its value of the searcher's metric."""
    best: dict[int, tuple[int, float]] = {}
    for ids in chunks(experiment_ids):
        # Each by the index on (experiment_id, best_validation): a window over all trials would read every one of them.
        chosen = select(
            case(
                (_experiment.smaller_is_better, _first(_other.best_validation)),
                else_=_first(_other.best_validation.desc()),
            )
        ).where(_experiment.id.in_(ids))
        query = select(_trial.experiment_id, _trial.id, _trial.best_validation).where(_trial.id.in_(chosen))
        best.update((id, (trial_id, value)) for id, trial_id, value in connection.execute(query))
    return best


def _first(order: Any) -> Any:
    """The id of the trial of ``_experiment`` that comes first."""
    measured = (_other.experiment_id == _experiment.id, _other.best_validation.is_not(None))
    return select(_other.id).where(*measured).order_by(order, _other.id).limit(1).scalar_subquery()


_running_of_trial = (
    select(literal(1))
    .where(_run.task_id == _task.id, _task.trial_id == _trial.id, _run.state == RunState.RUNNING)
    .exists()
)
TRIAL_KEYS: Mapping[str, ColumnElement[Any]] = {
    "id": _trial.id,
    "start_time": _trial.started_at,
    "end_time": _trial.ended_at,
    "state": _trial.state,
    "best_validation_metric": _trial.best_validation,
    "latest_validation_metric": _trial.latest_validation,
    "batches_processed": _trial.steps_completed,
    "duration": case((_trial.ended_at.is_(None), None), else_=_trial.ended_at - _trial.started_at),
    "restarts": _trial.restarts,
}
"""Keys that ``trials`` sorts by; "checkpoint_size" besides, which no index knows."""


def list_trials(
    connection: Connection, experiment_id: int, states: frozenset[str], order: Order, page: Page
) -> tuple[list[Trial], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    where: list[ColumnElement[bool]] = [_trial.experiment_id == experiment_id]
    if states:
        where.append(in_states(_trial.state, states, _running_of_trial))
    total = total_of(connection, Trial, where)
    begin = page.begin(total)
    if order.key != "checkpoint_size":
        key = sort_key(TRIAL_KEYS, order)
        return cut(connection, Trial, where, key, _trial.id, order, begin, page), total, begin
    ids = list(connection.scalars(select(_trial.id).where(*where)))
    sizes = sizes_of(connection, _checkpoint.trial_id, ids)
    chosen = by_value(ids, {id: sizes.get(id, (0, 0))[1] for id in ids}, order, page)
    found = {item.id: item for item in having(connection, Trial, _trial.id, chosen)}
    return [found[id] for id in chosen if id in found], total, begin


@dataclass(slots=True)
class TrialFigures:
    """What a trial's row does not say itself. ``summary``: group (as clients name it) -> metric -> its summary."""

    held_slots: int | None = None  # slots of the run that the scheduler runs now; None: it runs none
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    best: Metric | None = None  # the validation with the best value of the searcher's metric
    latest: Metric | None = None
    best_checkpoint: Checkpoint | None = None  # written at the step of ``best``, and not known to be damaged
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)


def trial_figures(connection: Connection, trials: Sequence[Trial]) -> dict[int, TrialFigures]:
    """Figures of the trials of one page."""
    figures = {trial.id: TrialFigures() for trial in trials}
    for ids in chunks(list(figures)):
        for id, slots in connection.execute(
            select(_task.trial_id, _run.slots).where(_task.id == _run.task_id, _task.trial_id.in_(ids), _running_now)
        ):
            figures[id].held_slots = slots + (figures[id].held_slots or 0)
        validation = and_(_metric.trial_id.in_(ids), _metric.group == "validation")
        at_best = and_(_metric.trial_id == _trial.id, _metric.steps_completed == _trial.best_validation_steps)
        best = rows.query(Metric, validation, at_best).order_by(_metric.id)
        for row in connection.execute(best):
            metric = Metric(*row)
            figures[metric.trial_id].best = metric
        last_steps = (
            select(_metric.trial_id, func.max(_metric.steps_completed).label("steps"))
            .where(validation)
            .group_by(_metric.trial_id)
            .subquery()
        )
        latest = rows.query(
            Metric,
            _metric.trial_id == last_steps.c.trial_id,
            _metric.group == "validation",
            _metric.steps_completed == last_steps.c.steps,
        ).order_by(_metric.id)
        for row in connection.execute(latest):
            metric = Metric(*row)
            figures[metric.trial_id].latest = metric
        written_at_best = rows.query(
            Checkpoint,
            _checkpoint.trial_id.in_(ids),
            _checkpoint.trial_id == _trial.id,
            _checkpoint.steps_completed == _trial.best_validation_steps,
            _checkpoint.state != CheckpointState.ERROR,
        )
        for row in connection.execute(written_at_best):
            found = Checkpoint(*row)
            figures[found.trial_id].best_checkpoint = found
        summaries = rows.query(Summary, _summary.trial_id.in_(ids))
        for row in connection.execute(summaries):
            _take_summary(figures[row[0]].summary, Summary(*row))
    for id, (count, size) in sizes_of(connection, _checkpoint.trial_id, list(figures)).items():
        figures[id].checkpoints, figures[id].checkpoint_bytes = count, size
    return figures


_running_now = _run.state == RunState.RUNNING
_GROUP_NAMES = {"training": "avg_metrics", "validation": "validation_metrics"}


def _take_summary(into: dict[str, dict[str, Any]], summary: Summary) -> None:
    values: dict[str, Any] = {"count": summary.count, "last": summary.last, "type": summary.type}
    if summary.type == "number":
        values.update(min=summary.min, max=summary.max, sum=summary.sum, mean=summary.mean)
    into.setdefault(_GROUP_NAMES.get(summary.group, summary.group), {})[summary.name] = values
