"""Trials: lists, and the figures that their rows do not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    and_,
    bindparam,
    case,
    func,
    literal,
    select,
    type_coerce,
)

from dethpc.domain.facts import Checkpoint, Experiment, Metric, Run, Task, Trial
from dethpc.domain.ports import SUSPENDED
from dethpc.domain.states import CheckpointState, RunState, State
from dethpc.errors import NotFound
from dethpc.state import rows
from dethpc.state.columns import decoded_all
from dethpc.state.dialects import VALUES, execute_in_chunks
from dethpc.state.queries.checkpoints import of_deleted, sizes_of_trials
from dethpc.state.queries.page import Order, Page, Sorted, having, in_states, one, sort_key, total_of
from dethpc.state.queries.tasks import of_trial
from dethpc.state.tables import Summary

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_other = rows.table(Trial).alias().c
_run = rows.table(Run).c
_task = rows.table(Task).c
_checkpoint = rows.table(Checkpoint).c
_metric = rows.table(Metric).c
_others = rows.table(Metric).alias().c
_summary = rows.table(Summary).c


def trial(connection: Connection, trial_id: int) -> Trial:
    """Raises: NotFound, also where its experiment was deleted."""
    row = one(connection, Trial, f"trial {trial_id}", id=trial_id)
    if of_deleted(connection, row.experiment_id):
        raise NotFound(f"trial {trial_id} not found: its experiment {row.experiment_id} was deleted")
    return row


def trial_of_external_id(connection: Connection, experiment_id: int, external_id: str) -> Trial | None:
    """The one of the experiment that scripts elsewhere call so."""
    query = rows.query(Trial, _trial.experiment_id == experiment_id, _trial.external_id == external_id)
    return rows.first(connection, Trial, query)


def trials_of_experiment(connection: Connection, experiment_id: int) -> list[Trial]:
    """All of them, by index."""
    trials = connection.execute(rows.query(Trial, _trial.experiment_id == experiment_id).order_by(_trial.index))
    return [Trial(*row) for row in trials]


def trials_by_id(connection: Connection, trial_ids: Sequence[int]) -> list[Trial]:
    """Those that exist, in the order asked for."""
    by_id = {item.id: item for item in having(connection, Trial, _trial.id, trial_ids)}
    return [by_id[id] for id in trial_ids if id in by_id]


def neighbours_of_trial(connection: Connection, trial: Trial) -> tuple[int | None, int | None]:
    """The trials of its experiment that were created before and after it."""
    beside = (_trial.experiment_id == trial.experiment_id, _trial.index.in_([trial.index - 1, trial.index + 1]))
    ids = dict(connection.execute(select(_trial.index, _trial.id).where(*beside)).all())
    return ids.get(trial.index - 1), ids.get(trial.index + 1)


def tried(connection: Connection, experiment_id: int, most: int) -> tuple[list[tuple[dict[str, Any], float]], int]:
    """Hyperparameters and best validation of trials that have one, evenly chosen where there are more than ``most``, and how many
    there are."""
    ids = sorted(connection.scalars(_THAT_HAVE_ONE, {"experiment": experiment_id}))
    chosen = ids if len(ids) <= most else [ids[index * len(ids) // most] for index in range(most)]
    return [(hparams, value) for hparams, value in execute_in_chunks(connection, _TRIED, chosen)], len(ids)


_THAT_HAVE_ONE = select(_trial.id).where(
    _trial.experiment_id == bindparam("experiment"), _trial.best_validation.is_not(None)
)
_TRIED = select(_trial.hparams, _trial.best_validation).where(_trial.id.in_(VALUES))


def trials_that_ended(connection: Connection, experiment_id: int, after: float, until: float) -> list[int]:
    """Ids of those that ended between these times."""
    query = select(_trial.id).where(
        _trial.experiment_id == experiment_id, _trial.ended_at > after, _trial.ended_at <= until
    )
    return list(connection.scalars(query.order_by(_trial.id)))


def trials_that_are_over(connection: Connection, trial_ids: Sequence[int], until: float) -> list[int]:
    """Which of so few trials have ended by then, as have their runs, in experiments whose files nobody has begun to delete."""
    live = select(literal(1)).where(_run.task_id == _task.id, _task.trial_id == _trial.id, _run.state != RunState.ENDED)
    query = (
        select(_trial.id)
        .join(rows.table(Experiment), _experiment.id == _trial.experiment_id)
        .where(_trial.id.in_(trial_ids), _trial.ended_at <= until, ~live.exists())
        .where(_trial.state.in_([state for state in State if state.terminal]))
        .where(_experiment.state.in_([state for state in State if state.keeps_files]))
    )
    return list(connection.scalars(query))


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
    best = execute_in_chunks(connection, _BEST_TRIALS, experiment_ids)
    return {id: (trial_id, value) for id, trial_id, value in best}


def _first(order: Any) -> Any:
    """The id of the trial of ``_experiment`` that comes first."""
    measured = (_other.experiment_id == _experiment.id, _other.best_validation.is_not(None))
    first = select(_other.id).where(*measured).order_by(order, _other.id).limit(1)
    return first.correlate(rows.table(Experiment)).scalar_subquery()


# Each by the index on (experiment_id, best_validation): a window over all trials would read every one of them.
best_of_experiment: ColumnElement[int] = case(
    (_experiment.smaller_is_better, _first(_other.best_validation)), else_=_first(_other.best_validation.desc())
)
_CHOSEN = select(best_of_experiment).where(_experiment.id.in_(VALUES))
_BEST_TRIALS = select(_trial.experiment_id, _trial.id, _trial.best_validation).where(_trial.id.in_(_CHOSEN))


def points_of_search(
    connection: Connection, experiment_id: int, smaller_is_better: bool, most: int
) -> list[tuple[int, dict[str, Any], float]]:
    """Trials that have a value of the searcher's metric, the best first: id, hyperparameters, best value. Rows are not made of
    them: ten thousand are one picture."""
    value, text = _trial.best_validation, type_coerce(_trial.hparams, String)
    query = select(_trial.id, text, value).where(_trial.experiment_id == experiment_id, value.is_not(None))
    order = value if smaller_is_better else value.desc()
    points = connection.execute(query.order_by(order, _trial.id).limit(most)).all()
    hparams = decoded_all(text for _, text, _ in points)
    return [(id, values, best) for (id, _, best), values in zip(points, hparams)]


TRIAL_KEYS: Mapping[str, ColumnElement[Any]] = {
    "id": _trial.id,
    "start_time": _trial.started_at,
    "end_time": _trial.ended_at,
    "state": _trial.state,
    "best_validation_metric": _trial.best_validation,
    "latest_validation_metric": _trial.latest_validation,
    "batches_processed": _trial.steps_completed,
    "duration": case(
        (_trial.ended_at.is_(None), None), else_=_trial.ended_at - _trial.started_at - _trial.ended_seconds
    ),
    "restarts": _trial.restarts,
    "checkpoint_size": select(func.coalesce(func.sum(_checkpoint.size), 0))
    .where(_checkpoint.trial_id == _trial.id)
    .scalar_subquery(),
}
"""Keys that ``trials`` sorts by."""

_BY_METRIC = ("best_validation_metric", "latest_validation_metric")
"""Ascending is the best first, whatever is better for the metric: as Determined's master has it, whose columns are signed."""


def list_trials(
    connection: Connection, experiment_id: int, states: frozenset[str], order: Order, page: Page
) -> tuple[list[Trial], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    where: list[ColumnElement[bool]] = [_trial.experiment_id == experiment_id]
    if states:
        where.append(in_states(_trial.state, states, _trial.id.in_(_running_in(experiment_id))))
    total = total_of(connection, Trial, where) if states else number_of_trials(connection, experiment_id)
    begin = page.begin(total)
    key = sort_key(TRIAL_KEYS, order)
    larger_first = order.key in _BY_METRIC and not connection.scalar(
        select(_experiment.smaller_is_better).where(_experiment.id == experiment_id)
    )
    ordered = Sorted(where, key, _trial.id, order.descending, larger_first)
    return ordered.page(connection, Trial, begin, page), total, begin


def number_of_trials(connection: Connection, experiment_id: int) -> int:
    return connection.scalar(_TRIALS_IN, {"experiment": experiment_id}) or 0


def trials_in(experiment_id: int | ColumnElement[int]) -> Select[int]:
    """How many trials an experiment has. Their indexes leave no gaps, and the last one is found along an index: nothing is
    counted."""
    return select(func.coalesce(func.max(_trial.index) + 1, 0)).where(_trial.experiment_id == experiment_id)


_TRIALS_IN = trials_in(bindparam("experiment"))


def _running_in(experiment_id: int) -> Select[int | None]:
    """The trials of the experiment that run now: asked for once, and not for each trial, of which as many may wait."""
    running = (_run.experiment_id == experiment_id, _run.state == RunState.RUNNING, _task.trial_id.is_not(None))
    return select(_task.trial_id).join_from(rows.table(Run), rows.table(Task), _run.task_id == _task.id).where(*running)


def trials_running(connection: Connection, experiment_id: int) -> set[int]:
    """Those of its trials that run now."""
    return {id for (id,) in connection.execute(_running_in(experiment_id)) if id is not None}


@dataclass(slots=True)
class TrialFigures:
    """What a trial's row does not say itself. ``summary``: group (as clients name it) -> metric -> its summary."""

    held_slots: int | None = None  # slots of the run that the scheduler runs now; None: it runs none
    suspended: bool = False  # the scheduler has suspended its job
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    best: Metric | None = None  # the validation with the best value of the searcher's metric
    latest: Metric | None = None
    best_checkpoint: Checkpoint | None = None  # written at the step of ``best``, and not known to be damaged
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)


def trial_figures(connection: Connection, trials: Sequence[Trial]) -> dict[int, TrialFigures]:
    """Figures of the trials of one page."""
    figures = {trial.id: TrialFigures() for trial in trials}
    ids = list(figures)
    for id, slots, state, reason in execute_in_chunks(connection, _RUNS, ids):
        # Told here: a database that looks for the state first reads whatever runs, of all experiments.
        if state is RunState.RUNNING:
            figures[id].held_slots = slots + (figures[id].held_slots or 0)
            figures[id].suspended = reason == SUSPENDED
    for row in execute_in_chunks(connection, _BEST, ids):
        metric = Metric(*row)
        figures[metric.trial_id].best = metric
    for row in execute_in_chunks(connection, _LATEST, ids):
        metric = Metric(*row)
        figures[metric.trial_id].latest = metric
    for row in execute_in_chunks(connection, _WRITTEN_AT_BEST, ids):
        checkpoint = Checkpoint(*row)
        figures[checkpoint.trial_id].best_checkpoint = checkpoint
    for row in execute_in_chunks(connection, _SUMMARIES, ids):
        _take_summary(figures[row[0]].summary, Summary(*row))
    for id, (count, size) in sizes_of_trials(connection, list(figures)).items():
        figures[id].checkpoints, figures[id].checkpoint_bytes = count, size
    return figures


_RUNS = select(_task.trial_id, _run.slots, _run.state, _run.reason).where(
    _task.id == _run.task_id, _task.trial_id.in_(VALUES)
)
_VALIDATION = and_(_metric.trial_id.in_(VALUES), _metric.group == "validation")
_BEST = rows.query(
    Metric,
    _VALIDATION,
    _metric.trial_id == _trial.id,
    _metric.steps_completed == _trial.best_validation_steps,
).order_by(_metric.id)
# For each trial by itself, found at the end of an index: to group them reads every report of theirs.
_LAST_STEPS = (
    select(func.max(_others.steps_completed))
    .where(_others.trial_id == _trial.id, _others.group == "validation")
    .scalar_subquery()
)
_LATEST = rows.query(
    Metric,
    _trial.id.in_(VALUES),
    _metric.trial_id == _trial.id,
    _metric.group == "validation",
    _metric.steps_completed == _LAST_STEPS,
).order_by(_metric.id)
_WRITTEN_AT_BEST = rows.query(
    Checkpoint,
    _checkpoint.trial_id.in_(VALUES),
    _checkpoint.trial_id == _trial.id,
    _checkpoint.steps_completed == _trial.best_validation_steps,
    _checkpoint.state != CheckpointState.ERROR,
)
_SUMMARIES = rows.query(Summary, _summary.trial_id.in_(VALUES))


_GROUP_NAMES = {"training": "avg_metrics", "validation": "validation_metrics"}


def _take_summary(into: dict[str, dict[str, Any]], summary: Summary) -> None:
    values: dict[str, Any] = {"count": summary.count, "last": summary.last, "type": summary.type}
    if summary.type == "number":
        values.update(min=summary.min, max=summary.max, sum=summary.sum, mean=summary.mean)
    into.setdefault(_GROUP_NAMES.get(summary.group, summary.group), {})[summary.name] = values
