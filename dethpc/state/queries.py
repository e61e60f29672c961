"""What readers ask of the database: lists with filters, order and pages, and figures about what a page shows.

Every function takes a connection of ``SqlStore.read`` and keeps no state. Pages are cut and sorted by the database along its
indexes, so a page of a list of 100,000 trials costs what its own rows cost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, String, and_, case, func, literal, or_, select, type_coerce

from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, NodeHealth, Run, SearchNote, Trial
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import CheckpointState, RunState, State
from dethpc.errors import NotFound, Refused
from dethpc.state import rows
from dethpc.state.summaries import Summary

Fact = TypeVar("Fact")

_AT_ONCE = 500  # values in one IN list
_SIZES_OF = 2000  # checkpoints of an experiment whose sizes are added up for each answer
_TRIAL_IDS = 1000  # more ids than that tell nobody anything in the answer about one experiment

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_run = rows.table(Run).c
_attempt = rows.table(Attempt).c
_checkpoint = rows.table(Checkpoint).c
_metric = rows.table(Metric).c
_summary = rows.table(Summary).c
_note = rows.table(SearchNote).c


@dataclass(slots=True)
class Order:
    """How a list is sorted: by a key of the list's own table of keys; equals by id."""

    key: str = "id"
    descending: bool = False


@dataclass(slots=True)
class Page:
    """``limit`` None: all of it; 0: nothing, only the total counts. A negative offset counts from the end."""

    offset: int = 0
    limit: int | None = 100

    def begin(self, total: int) -> int:
        return max(total + self.offset, 0) if self.offset < 0 else min(self.offset, total)


# --- one thing


def experiment(connection: Connection, experiment_id: int) -> Experiment:
    """Raises: NotFound."""
    return _one(connection, Experiment, _experiment.id == experiment_id, f"experiment {experiment_id}")


def experiment_of_job(connection: Connection, job_id: str) -> Experiment | None:
    row = connection.execute(rows.query(Experiment, _experiment.job_id == job_id)).first()
    return None if row is None else Experiment(*row)


def trial(connection: Connection, trial_id: int) -> Trial:
    """Raises: NotFound."""
    return _one(connection, Trial, _trial.id == trial_id, f"trial {trial_id}")


def run(connection: Connection, run_id: str) -> Run:
    """Raises: NotFound."""
    return _one(connection, Run, _run.id == run_id, f"run {run_id}")


def checkpoint(connection: Connection, uuid: str) -> Checkpoint:
    """Raises: NotFound."""
    return _one(connection, Checkpoint, _checkpoint.uuid == uuid, f"checkpoint {uuid}")


def _one(connection: Connection, fact: type[Fact], where: ColumnElement[bool], what: str) -> Fact:
    row = connection.execute(rows.query(fact, where)).first()
    if row is None:
        raise NotFound(f"{what} not found")
    return fact(*row)


# --- experiments


@dataclass(slots=True)
class ExperimentFilter:
    """None: no condition. ``states`` are names of ``State``, and QUEUED and RUNNING, the two kinds of ACTIVE.

    ``name`` and ``description`` are parts of the text, in any case; an experiment must have all ``labels``.
    """

    archived: bool | None = None
    states: frozenset[str] = frozenset()
    labels: Sequence[str] = ()
    name: str | None = None
    description: str | None = None
    owners: Sequence[str] | None = None
    ids: Sequence[int] | None = None
    not_ids: Sequence[int] = ()
    at_least: int | None = None
    at_most: int | None = None
    project_id: int | None = None
    parent_id: int | None = None


_running_of_experiment = (
    select(literal(1)).where(_run.experiment_id == _experiment.id, _run.state == RunState.RUNNING).exists()
)
_trials_of_experiment = (
    select(func.count()).select_from(rows.table(Trial)).where(_trial.experiment_id == _experiment.id).scalar_subquery()
)
_checkpoints_of_experiment = (
    select(func.count())
    .select_from(rows.table(Checkpoint))
    .where(_checkpoint.experiment_id == _experiment.id)
    .scalar_subquery()
)

EXPERIMENT_KEYS: Mapping[str, ColumnElement[Any]] = {
    "id": _experiment.id,
    "description": _experiment.description,
    "start_time": _experiment.created_at,
    "end_time": _experiment.ended_at,
    "state": _experiment.state,
    "num_trials": _trials_of_experiment,
    "progress": _experiment.progress,
    "user": _experiment.owner,
    "name": _experiment.name,
    "forked_from": _experiment.parent_id,
    "resource_pool": _experiment.pool,
    "project_id": _experiment.project_id,
    "checkpoint_count": _checkpoints_of_experiment,
}
"""Keys that ``experiments`` sorts by; "checkpoint_size" and "searcher_metric_val" besides, which no index knows."""


def experiments(
    connection: Connection, wanted: ExperimentFilter, order: Order, page: Page
) -> tuple[list[Experiment], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    where = _experiment_conditions(wanted)
    total = _count(connection, Experiment, where)
    begin = page.begin(total)
    if order.key not in ("checkpoint_size", "searcher_metric_val"):
        key = _key(EXPERIMENT_KEYS, order)
        return _cut(connection, Experiment, where, key, _experiment.id, order, begin, page), total, begin
    ids = list(connection.scalars(select(_experiment.id).where(*where)))
    if order.key == "checkpoint_size":
        sizes = _sizes(connection, _checkpoint.experiment_id, ids)
        values: dict[int, Any] = {id: sizes.get(id, (0, 0))[1] for id in ids}
    else:
        values = {id: best[1] for id, best in best_trials(connection, ids).items()}
    chosen = _slice(ids, values, order, begin, page)
    found = {item.id: item for item in _in(connection, Experiment, _experiment.id, chosen)}
    return [found[id] for id in chosen if id in found], total, begin


def _experiment_conditions(wanted: ExperimentFilter) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if wanted.archived is not None:
        where.append(_experiment.archived == wanted.archived)
    if wanted.states:
        where.append(_of_states(_experiment.state, wanted.states, _running_of_experiment))
    elif wanted.ids is None:
        where.append(_experiment.state != State.DELETED)
    for label in wanted.labels:
        text = type_coerce(_experiment.labels, String)
        where.append(func.replace(text, json.dumps(label), "") != text)  # exact, where LIKE may ignore the case
    if wanted.name:
        where.append(func.lower(_experiment.name).contains(wanted.name.lower(), autoescape=True))
    if wanted.description:
        where.append(func.lower(_experiment.description).contains(wanted.description.lower(), autoescape=True))
    if wanted.owners is not None:
        where.append(_experiment.owner.in_(wanted.owners))
    if wanted.ids is not None:
        where.append(_experiment.id.in_(wanted.ids))
    if wanted.not_ids:
        where.append(_experiment.id.not_in(wanted.not_ids))
    if wanted.at_least is not None:
        where.append(_experiment.id >= wanted.at_least)
    if wanted.at_most is not None:
        where.append(_experiment.id <= wanted.at_most)
    if wanted.project_id:
        where.append(_experiment.project_id == wanted.project_id)
    if wanted.parent_id is not None:
        where.append(_experiment.parent_id == wanted.parent_id)
    return where


def _of_states(column: ColumnElement[Any], wanted: frozenset[str], running: ColumnElement[bool]) -> ColumnElement[bool]:
    plain = [State(name) for name in wanted if name in State.__members__]
    conditions: list[ColumnElement[bool]] = [column.in_(plain)]
    if State.ACTIVE.value not in wanted:
        if wanted & {"RUNNING"}:
            conditions.append(and_(column == State.ACTIVE, running))
        if wanted & {"QUEUED", "PULLING", "STARTING"}:
            conditions.append(and_(column == State.ACTIVE, ~running))
    return or_(*conditions)


@dataclass(slots=True)
class ExperimentFigures:
    """What an experiment's row does not say itself."""

    trials: int = 0
    running: int = 0  # runs that the scheduler runs now
    live: int = 0  # runs that have not ended
    slots_running: int = 0
    slots_live: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int | None = None  # None: too many to add up for every answer
    best_trial: int | None = None
    best_metric: float | None = None
    trial_ids: list[int] = field(default_factory=list)


def experiment_figures(
    connection: Connection, experiment_ids: Sequence[int], *, trial_ids: bool = False
) -> dict[int, ExperimentFigures]:
    """Figures of each experiment. ``trial_ids`` fills in the first thousand ids of its trials too."""
    figures = {id: ExperimentFigures() for id in experiment_ids}
    for ids in _chunks(experiment_ids):
        counted = (
            select(_trial.experiment_id, func.count())
            .where(_trial.experiment_id.in_(ids))
            .group_by(_trial.experiment_id)
        )
        for id, count in connection.execute(counted):
            figures[id].trials = count
        live = (
            select(_run.experiment_id, _run.state, func.count(), func.sum(_run.slots))
            .where(_run.experiment_id.in_(ids), _run.state != RunState.ENDED)
            .group_by(_run.experiment_id, _run.state)
        )
        for id, state, count, slots in connection.execute(live):
            figures[id].live += count
            figures[id].slots_live += int(slots)
            if state is RunState.RUNNING:
                figures[id].running += count
                figures[id].slots_running += int(slots)
        counted = (
            select(_checkpoint.experiment_id, func.count())
            .where(_checkpoint.experiment_id.in_(ids))
            .group_by(_checkpoint.experiment_id)
        )
        for id, count in connection.execute(counted):
            figures[id].checkpoints = count
    few = [id for id in experiment_ids if figures[id].checkpoints <= _SIZES_OF]
    sizes = _sizes(connection, _checkpoint.experiment_id, few)
    for id in few:
        figures[id].checkpoint_bytes = sizes.get(id, (0, 0))[1]
    for id, (trial_id, value) in best_trials(connection, experiment_ids).items():
        figures[id].best_trial, figures[id].best_metric = trial_id, value
    if trial_ids:
        for id in experiment_ids:
            query = select(_trial.id).where(_trial.experiment_id == id).order_by(_trial.id).limit(_TRIAL_IDS)
            figures[id].trial_ids = list(connection.scalars(query))
    return figures


def best_trials(connection: Connection, experiment_ids: Sequence[int]) -> dict[int, tuple[int, float]]:
    """The best trial of each experiment that has one, and its value of the searcher's metric."""
    best: dict[int, tuple[int, float]] = {}
    for ids in _chunks(experiment_ids):
        configs = connection.execute(select(_experiment.id, _experiment.config).where(_experiment.id.in_(ids)))
        for id, config in configs.all():
            smaller = smaller_is_better(config)
            query = (
                select(_trial.id, _trial.best_validation)
                .where(_trial.experiment_id == id, _trial.best_validation.is_not(None))
                .order_by(_trial.best_validation.asc() if smaller else _trial.best_validation.desc(), _trial.id)
                .limit(1)
            )
            row = connection.execute(query).first()
            if row is not None:
                best[id] = (row[0], row[1])
    return best


def searcher_metric(config: Mapping[str, Any]) -> str:
    return str((config.get("searcher") or {}).get("metric") or "")


def smaller_is_better(config: Mapping[str, Any]) -> bool:
    return bool((config.get("searcher") or {}).get("smaller_is_better", True))


def labels(connection: Connection) -> list[str]:
    """All labels in use, the most popular first."""
    counts: dict[str, int] = {}
    for names in connection.scalars(select(_experiment.labels).where(_experiment.state != State.DELETED)):
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def states_of_trials(connection: Connection, experiment_id: int) -> dict[str, int]:
    """How many trials are in each state."""
    query = select(_trial.state, func.count()).where(_trial.experiment_id == experiment_id).group_by(_trial.state)
    return {state.value: count for state, count in connection.execute(query)}


def validation_history(connection: Connection, experiment_id: int) -> list[tuple[int, float, float]]:
    """(trial id, time, value) of each validation that was the best of the experiment until then."""
    config = experiment(connection, experiment_id).config
    name, smaller = searcher_metric(config), smaller_is_better(config)
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


# --- trials

_running_of_trial = select(literal(1)).where(_run.trial_id == _trial.id, _run.state == RunState.RUNNING).exists()

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


def trials(
    connection: Connection, experiment_id: int, states: frozenset[str], order: Order, page: Page
) -> tuple[list[Trial], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    where: list[ColumnElement[bool]] = [_trial.experiment_id == experiment_id]
    if states:
        where.append(_of_states(_trial.state, states, _running_of_trial))
    total = _count(connection, Trial, where)
    begin = page.begin(total)
    if order.key != "checkpoint_size":
        key = _key(TRIAL_KEYS, order)
        return _cut(connection, Trial, where, key, _trial.id, order, begin, page), total, begin
    ids = list(connection.scalars(select(_trial.id).where(*where)))
    sizes = _sizes(connection, _checkpoint.trial_id, ids)
    chosen = _slice(ids, {id: sizes.get(id, (0, 0))[1] for id in ids}, order, begin, page)
    found = {item.id: item for item in _in(connection, Trial, _trial.id, chosen)}
    return [found[id] for id in chosen if id in found], total, begin


def trials_of_experiment(connection: Connection, experiment_id: int) -> list[Trial]:
    """All of them, by index."""
    found = connection.execute(rows.query(Trial, _trial.experiment_id == experiment_id).order_by(_trial.index))
    return [Trial(*row) for row in found]


def trials_by_id(connection: Connection, trial_ids: Sequence[int]) -> list[Trial]:
    """Those that exist, in the order asked for."""
    found = {item.id: item for item in _in(connection, Trial, _trial.id, trial_ids)}
    return [found[id] for id in trial_ids if id in found]


@dataclass(slots=True)
class TrialFigures:
    """What a trial's row does not say itself. ``summary``: group (as clients name it) -> metric -> its summary."""

    running: bool = False
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    best: Metric | None = None  # the validation with the best value of the searcher's metric
    latest: Metric | None = None
    best_checkpoint: Checkpoint | None = None  # written at the step of ``best``
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)


def trial_figures(connection: Connection, trials: Sequence[Trial]) -> dict[int, TrialFigures]:
    """Figures of the trials of one page."""
    figures = {trial.id: TrialFigures() for trial in trials}
    for ids in _chunks(list(figures)):
        for id in connection.scalars(select(_run.trial_id).where(_run.trial_id.in_(ids), _running_now)):
            figures[id].running = True
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
        )
        for row in connection.execute(written_at_best):
            found = Checkpoint(*row)
            figures[found.trial_id].best_checkpoint = found
        summaries = rows.query(Summary, _summary.trial_id.in_(ids))
        for row in connection.execute(summaries):
            _take_summary(figures[row[0]].summary, Summary(*row))
    for id, (count, size) in _sizes(connection, _checkpoint.trial_id, list(figures)).items():
        figures[id].checkpoints, figures[id].checkpoint_bytes = count, size
    return figures


_running_now = _run.state == RunState.RUNNING
_GROUP_NAMES = {"training": "avg_metrics", "validation": "validation_metrics"}


def _take_summary(into: dict[str, dict[str, Any]], summary: Summary) -> None:
    values: dict[str, Any] = {"count": summary.count, "last": summary.last, "type": summary.type}
    if summary.type == "number":
        values.update(min=summary.min, max=summary.max, sum=summary.sum, mean=summary.mean)
    into.setdefault(_GROUP_NAMES.get(summary.group, summary.group), {})[summary.name] = values


# --- searches


def search(connection: Connection, experiment_id: int) -> Snapshot:
    """What the experiment's search is folded from: also that of one that has ended. Raises: NotFound."""
    return Snapshot(
        experiments=[experiment(connection, experiment_id)],
        trials=rows.read(connection, Trial, _trial.experiment_id == experiment_id),
        runs=[],
        attempts=[],
        checkpoints=[],
        notes=search_notes(connection, experiment_id),
        next_experiment_id=1,
        next_trial_id=1,
    )


def search_notes(connection: Connection, experiment_id: int, after: int = 0) -> list[SearchNote]:
    """What the searcher remembers, in order, from the note behind number ``after`` on."""
    return rows.read(connection, SearchNote, _note.experiment_id == experiment_id, _note.seq > after)


def training_times(connection: Connection, experiment_id: int) -> list[tuple[float, float | None]]:
    """From when to when each run of the experiment ran, by start; None: it still does."""
    query = select(_run.started_at, _run.ended_at, _run.state).where(
        _run.experiment_id == experiment_id, _run.started_at.is_not(None)
    )
    times = connection.execute(query.order_by(_run.started_at))
    return [(begin, (end or begin) if state is RunState.ENDED else None) for begin, end, state in times]


# --- runs and attempts


def runs_of_trial(connection: Connection, trial_id: int) -> list[Run]:
    """In the order in which they were submitted."""
    query = rows.query(Run, _run.trial_id == trial_id).order_by(_run.n)
    return [Run(*row) for row in connection.execute(query)]


def runs_with_attempts(
    connection: Connection, *, experiment_id: int | None = None, trial_id: int | None = None, since: float | None = None
) -> Iterator[tuple[Run, list[Attempt]]]:
    """Runs with their attempts in order, those on the cluster alone; by trial and number. ``since``: those that had not ended
    by then. Costs two queries, whatever the number."""
    elsewhere = select(_experiment.id).where(_experiment.unmanaged)
    where: list[ColumnElement[bool]] = [_run.experiment_id.not_in(elsewhere)]
    if experiment_id is not None:
        where.append(_run.experiment_id == experiment_id)
    if trial_id is not None:
        where.append(_run.trial_id == trial_id)
    if since is not None:
        where.append(or_(_run.ended_at.is_(None), _run.ended_at > since))
    attempts: dict[str, list[Attempt]] = {}
    of_runs = rows.query(Attempt, _attempt.run_id.in_(select(_run.id).where(*where)))
    for row in connection.execute(of_runs.order_by(_attempt.run_id, _attempt.k)):
        attempts.setdefault(row[0], []).append(Attempt(*row))
    for row in connection.execute(rows.query(Run, *where).order_by(_run.trial_id, _run.n)):
        run = Run(*row)
        yield run, attempts.get(run.id, [])


def live_runs(connection: Connection) -> list[Run]:
    """Every run that has not ended."""
    return rows.read(connection, Run, _run.state.in_([state for state in RunState if state is not RunState.ENDED]))


def jobs_of_runs(connection: Connection, job_ids: Collection[str]) -> set[str]:
    """Which of the scheduler's jobs are, or were, those of runs."""
    return {str(job) for (job,) in connection.execute(select(_run.job_id).where(_run.job_id.in_(job_ids)))}


def attempts_of_trial(connection: Connection, trial_id: int) -> list[Attempt]:
    return rows.read(connection, Attempt, _attempt.trial_id == trial_id)


def attempt(connection: Connection, run_id: str, k: int) -> Attempt:
    """Raises: NotFound."""
    where = and_(_attempt.run_id == run_id, _attempt.k == k)
    return _one(connection, Attempt, where, f"allocation {run_id}.{k}")


def nodes(connection: Connection) -> list[NodeHealth]:
    """What is held against nodes."""
    return rows.read(connection, NodeHealth)


def names_of_experiments(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    names: dict[int, str] = {}
    for chunk in _chunks(sorted(set(ids))):
        query = select(_experiment.id, _experiment.name).where(_experiment.id.in_(chunk))
        names.update((id, name) for id, name in connection.execute(query))
    return names


def trial_is_over(connection: Connection, trial_id: int) -> bool:
    """Whether nothing of the trial will be written any more: it has ended and so have its runs."""
    state = connection.scalar(select(_trial.state).where(_trial.id == trial_id))
    live = select(_run.id).where(_run.trial_id == trial_id, _run.state != RunState.ENDED).limit(1)
    return state is None or (state.terminal and connection.scalar(live) is None)


# --- checkpoints

CHECKPOINT_KEYS: Mapping[str, ColumnElement[Any]] = {
    "uuid": _checkpoint.uuid,
    "trial_id": _checkpoint.trial_id,
    "batch_number": _checkpoint.steps_completed,
    "end_time": _checkpoint.reported_at,
    "state": _checkpoint.state,
}


@dataclass(slots=True)
class CheckpointFilter:
    """Exactly one of ``experiment_id`` and ``trial_id``. With ``metric`` only checkpoints with that validation metric,
    sorted by its value."""

    experiment_id: int | None = None
    trial_id: int | None = None
    states: frozenset[str] = frozenset()
    metric: str | None = None


@dataclass(slots=True)
class CheckpointOrigin:
    """The training that wrote a checkpoint. ``validation``: the metrics reported at the checkpoint's step."""

    config: dict[str, Any]
    hparams: dict[str, Any]
    validation: dict[str, Any] | None


def checkpoints(
    connection: Connection, wanted: CheckpointFilter, order: Order, page: Page
) -> tuple[list[Checkpoint], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    where: list[ColumnElement[bool]] = []
    if wanted.experiment_id is not None:
        where.append(_checkpoint.experiment_id == wanted.experiment_id)
    if wanted.trial_id is not None:
        where.append(_checkpoint.trial_id == wanted.trial_id)
    if wanted.states:
        where.append(type_coerce(_checkpoint.state, String).in_(sorted(wanted.states)))
    if wanted.metric is None:
        total = _count(connection, Checkpoint, where)
        begin = page.begin(total)
        key = _key(CHECKPOINT_KEYS, order)
        return _cut(connection, Checkpoint, where, key, _checkpoint.uuid, order, begin, page), total, begin
    measured = (
        select(_checkpoint.uuid, _metric.metrics)
        .where(*where, _at_step_of_checkpoint)
        .order_by(_checkpoint.reported_at, _checkpoint.uuid, _metric.id)
    )
    values: dict[str, float] = {}
    for uuid, metrics in connection.execution_options(yield_per=1000).execute(measured):
        value = metrics.get(wanted.metric)
        if isinstance(value, (int, float)) and value == value:
            values[uuid] = value
    begin = page.begin(len(values))
    chosen = _slice(list(values), values, order, begin, page)
    found = {item.uuid: item for item in _in(connection, Checkpoint, _checkpoint.uuid, chosen)}
    return [found[uuid] for uuid in chosen], len(values), begin


_at_step_of_checkpoint = and_(
    _metric.trial_id == _checkpoint.trial_id,
    _metric.group == "validation",
    _metric.steps_completed == _checkpoint.steps_completed,
)


def checkpoints_of_trial(connection: Connection, trial_id: int) -> list[Checkpoint]:
    return rows.read(connection, Checkpoint, _checkpoint.trial_id == trial_id)


def checkpoint_seconds(connection: Connection, experiment_id: int, most: int = 100) -> list[float]:
    """How long saving each of the experiment's latest checkpoints took, as far as measured."""
    query = (
        select(_checkpoint.seconds)
        .where(_checkpoint.experiment_id == experiment_id)
        .order_by(_checkpoint.reported_at.desc())
        .limit(most)
    )
    return [seconds for seconds in connection.scalars(query) if seconds is not None]


def checkpoint_origins(connection: Connection, checkpoints: Sequence[Checkpoint]) -> dict[str, CheckpointOrigin]:
    """Where each checkpoint of a page comes from."""
    experiments = {item.experiment_id for item in checkpoints}
    configs: dict[int, dict[str, Any]] = {}
    for ids in _chunks(sorted(experiments)):
        query = select(_experiment.id, _experiment.config).where(_experiment.id.in_(ids))
        configs.update((id, config) for id, config in connection.execute(query))
    hparams: dict[int, dict[str, Any]] = {}
    for ids in _chunks(sorted({item.trial_id for item in checkpoints})):
        of_trials = select(_trial.id, _trial.hparams).where(_trial.id.in_(ids))
        hparams.update((id, values) for id, values in connection.execute(of_trials))
    validation: dict[str, dict[str, Any]] = {}
    for uuids in _chunks([item.uuid for item in checkpoints]):
        measured = (
            select(_checkpoint.uuid, _metric.metrics)
            .where(_checkpoint.uuid.in_(uuids), _at_step_of_checkpoint)
            .order_by(_metric.id)
        )
        validation.update((uuid, metrics) for uuid, metrics in connection.execute(measured))
    return {
        item.uuid: CheckpointOrigin(
            configs.get(item.experiment_id, {}), hparams.get(item.trial_id, {}), validation.get(item.uuid)
        )
        for item in checkpoints
    }


# --- metrics


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
    for ids in _chunks([id for id, uuid in chosen if not uuid]):
        query = rows.query(Metric, _metric.id.in_(ids)).add_columns(_metric.id)
        reports_by_id.update((row[-1], Metric(*row[:-1])) for row in connection.execute(query))
    uuids = [uuid for _, uuid in chosen if uuid]
    checkpoints_by_uuid = {item.uuid: item for item in _in(connection, Checkpoint, _checkpoint.uuid, uuids)}
    return [checkpoints_by_uuid[uuid] if uuid else reports_by_id[id] for id, uuid in chosen], total, begin


# --- shared


def _count(connection: Connection, fact: type[Any], where: Sequence[ColumnElement[bool]]) -> int:
    return connection.scalar(select(func.count()).select_from(rows.table(fact)).where(*where)) or 0


def _key(keys: Mapping[str, ColumnElement[Any]], order: Order) -> ColumnElement[Any]:
    if order.key not in keys:
        raise Refused(f"cannot sort by {order.key!r}; known are {', '.join(keys)}")
    return keys[order.key]


def _cut(
    connection: Connection,
    fact: type[Fact],
    where: Sequence[ColumnElement[bool]],
    key: ColumnElement[Any],
    id: ColumnElement[Any],
    order: Order,
    begin: int,
    page: Page,
) -> list[Fact]:
    """A sorted page; rows without a value come last either way. Only ids are sorted, and only the page's rows are read."""
    if page.limit == 0:
        return []
    by = key.desc() if order.descending else key.asc()
    tie = id.desc() if order.descending else id.asc()
    keys = [tie] if key is id else [by.nulls_last(), tie]
    ids = list(connection.scalars(select(id).where(*where).order_by(*keys).offset(begin).limit(page.limit)))
    found = {getattr(item, id.key or ""): item for item in _in(connection, fact, id, ids)}
    return [found[one] for one in ids]


Key = TypeVar("Key", int, str)


def _slice(ids: Sequence[Key], values: Mapping[Key, Any], order: Order, begin: int, page: Page) -> list[Key]:
    """A page of ids by value, those without one last."""
    known = sorted((id for id in ids if id in values), reverse=order.descending)
    known.sort(key=lambda id: values[id], reverse=order.descending)
    ordered = known + [id for id in ids if id not in values]
    return ordered[begin:] if page.limit is None else ordered[begin : begin + page.limit]


def _sizes(connection: Connection, column: ColumnElement[Any], ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Number of checkpoints and their bytes, by the id in ``column``."""
    sizes: dict[int, tuple[int, int]] = {}
    for chunk in _chunks(ids):
        query = select(column, _checkpoint.resources).where(column.in_(chunk))
        for id, resources in connection.execute(query):
            count, size = sizes.get(id, (0, 0))
            sizes[id] = (count + 1, size + sum(resources.values()))
    return sizes


def _in(connection: Connection, fact: type[Fact], column: ColumnElement[Any], values: Sequence[Any]) -> list[Fact]:
    return [fact(*row) for chunk in _chunks(values) for row in connection.execute(rows.query(fact, column.in_(chunk)))]


Value = TypeVar("Value")


def _chunks(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]
