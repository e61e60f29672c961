"""Experiments: lists with filters, and the figures that their rows do not say."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, String, bindparam, case, cast, func, literal, or_, select, type_coerce

from dethpc.domain.facts import IN_MEMORY, Attempt, Checkpoint, Experiment, Run, SearchNote, Task, Trial
from dethpc.domain.ports import SUSPENDED, Snapshot
from dethpc.domain.records import Project, User, Workspace
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.errors import NotFound
from dethpc.state import rows
from dethpc.state.dialects import VALUES, execute_in_chunks
from dethpc.state.queries.checkpoints import sizes_of_experiments
from dethpc.state.queries.page import (
    Order,
    Page,
    Sorted,
    by_value,
    having,
    in_states,
    one,
    sort_key,
    total_of,
)
from dethpc.state.queries.projects import Place, places_of_experiments
from dethpc.state.queries.trials import best_trials, trials_in
from dethpc.state.queries.users import UserName, users_of_experiments
from dethpc.state.tables import StoredSum

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_run = rows.table(Run).c
_task = rows.table(Task).c
_stored = rows.table(StoredSum).c
_project = rows.table(Project).c
_workspace = rows.table(Workspace).c
_user = rows.table(User).c

_TRIAL_IDS = 1000  # more ids than that tell nobody anything in the answer about one experiment


def experiment(connection: Connection, experiment_id: int) -> Experiment:
    """Raises: NotFound, also where it was deleted: its row stays, for decisions that were taken are kept."""
    row = one(connection, Experiment, f"experiment {experiment_id}", id=experiment_id)
    if row.state is State.DELETED:
        raise NotFound(f"experiment {experiment_id} not found: it was deleted")
    return row


def past(connection: Connection, experiment_id: int) -> Snapshot:
    """Everything of it that decisions read, all its trials' history included. Raises: NotFound."""
    kinds: tuple[type[Any], ...] = (Trial, Task, Run, Attempt, Checkpoint, SearchNote)
    facts = {kind: rows.read(connection, kind, rows.table(kind).c.experiment_id == experiment_id) for kind in kinds}
    return Snapshot({Experiment: [experiment(connection, experiment_id)], **facts}, 1, 1)


def past_of_trials(connection: Connection, experiment_id: int) -> Iterator[Any]:
    """The same rows one by one, kind by kind, as ``facts.IN_MEMORY`` has them; without tasks that belong to no trial, and what
    belongs to these: they did something here, such as removing files."""
    yield experiment(connection, experiment_id)
    tasks = select(_task.id).where(_task.experiment_id == experiment_id, _task.trial_id.is_not(None))
    of_trials: dict[type[Any], ColumnElement[bool]] = {
        Task: _task.trial_id.is_not(None),
        Run: _run.task_id.in_(tasks),
        Attempt: rows.table(Attempt).c.task_id.in_(tasks),
    }
    kinds: tuple[type[Any], ...] = (Trial, Task, Run, Attempt, Checkpoint, SearchNote)
    for kind in (kind for kind in IN_MEMORY if kind in kinds):
        where = [of_trials[kind]] if kind in of_trials else []
        yield from rows.stream(connection, kind, rows.table(kind).c.experiment_id == experiment_id, *where)


def experiment_of_external_id(connection: Connection, external_id: str) -> Experiment | None:
    """The one that scripts elsewhere call so, and that was not deleted."""
    of_earlier_release = str(uuid.uuid5(uuid.NAMESPACE_OID, f"experiment {external_id}"))  # which kept no external ids
    called_so = or_(_experiment.external_id == external_id, _experiment.queue_id == of_earlier_release)
    there = _experiment.state.not_in([State.DELETING, State.DELETED])
    return rows.first(connection, Experiment, rows.query(Experiment, called_so, there))


def experiment_of_archive(connection: Connection, key: str) -> Experiment | None:
    """The last one that was taken in from the archive with this key, and that was not deleted."""
    keeping = [state for state in State if state.keeps_files]
    where = (_experiment.imported_run.startswith(f"{key}.", autoescape=True), _experiment.state.in_(keeping))
    return rows.first(connection, Experiment, rows.query(Experiment, *where).order_by(_experiment.id.desc()).limit(1))


def experiment_of_copy(connection: Connection, token: str) -> Experiment | None:
    """The one that was made of the archive with this token."""
    return rows.first(connection, Experiment, rows.query(Experiment, _experiment.imported_run == token))


def first_trial_id(connection: Connection, experiment_id: int) -> int:
    """The lowest id of its trials; 0 where it has none."""
    trial = rows.table(Trial).c
    return connection.scalar(select(func.min(trial.id)).where(trial.experiment_id == experiment_id)) or 0


def experiments_that_configure(connection: Connection, field: str) -> dict[int, dict[str, Any]]:
    """Configurations, by id, in which a key of this name stands somewhere."""
    mentions = cast(_experiment.config, String).contains(json.dumps(field), autoescape=True)
    matches = connection.execute(select(_experiment.id, _experiment.config).where(mentions))
    return {row.id: row.config for row in matches}


def experiments_by_id(connection: Connection, experiment_ids: Sequence[int]) -> list[Experiment]:
    """Those that there are."""
    return having(connection, Experiment, _experiment.id, experiment_ids)


def all_experiments(connection: Connection) -> list[Experiment]:
    return rows.read(connection, Experiment)


def queue_ids(connection: Connection) -> set[str]:
    """Of all experiments that keep their files, and all launched tasks."""
    keeping = [state for state in State if state.keeps_files]
    of_experiments = select(_experiment.queue_id).where(_experiment.state.in_(keeping))
    launched = select(_task.queue_id).where(_task.kind.in_([kind for kind in TaskKind if kind.launched]))
    return {*connection.scalars(of_experiments), *connection.scalars(launched)}


def contexts_of_experiments(connection: Connection) -> set[str]:
    """Those of all experiments that were not deleted."""
    return set(connection.scalars(select(_experiment.context_sha256).where(_experiment.state != State.DELETED)))


def shares_context(connection: Connection, experiment: Experiment) -> bool:
    """Whether another experiment that was not deleted has its context."""
    others = (_experiment.id != experiment.id, _experiment.state != State.DELETED)
    same = select(_experiment.id).where(_experiment.context_sha256 == experiment.context_sha256, *others).limit(1)
    return connection.scalar(same) is not None


def ended_last(connection: Connection, most: int) -> list[Experiment]:
    """Those that ended last, the latest first."""
    query = rows.query(Experiment, _experiment.ended_at.is_not(None)).order_by(_experiment.ended_at.desc()).limit(most)
    return [Experiment(*row) for row in connection.execute(query)]


def names_of_experiments(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    return dict(execute_in_chunks(connection, _NAMES, sorted(set(ids))))


_NAMES = select(_experiment.id, _experiment.name).where(_experiment.id.in_(VALUES))


@dataclass(slots=True)
class ExperimentFilter:
    """None: no condition. ``states`` are names of ``State``, and QUEUED and RUNNING, the two kinds of ACTIVE.

    ``name`` and ``description`` are parts of the text, in any case; an experiment must have all ``labels``.
    ``user_ids``: of those who created it.
    """

    archived: bool | None = None
    states: frozenset[str] = frozenset()
    labels: Sequence[str] = ()
    name: str | None = None
    description: str | None = None
    user_ids: Sequence[int] | None = None
    ids: Sequence[int] | None = None
    not_ids: Sequence[int] = ()
    at_least: int | None = None
    at_most: int | None = None
    project_id: int | None = None
    parent_id: int | None = None

    @property
    def reads_every_row(self) -> bool:
        """No index finds a part of a text."""
        return bool(self.name or self.description or self.labels)


running_of_experiment = (
    select(literal(1)).where(_run.experiment_id == _experiment.id, _run.state == RunState.RUNNING).exists()
)
_put_away = select(_project.id).where(
    or_(_project.archived, _project.workspace_id.in_(select(_workspace.id).where(_workspace.archived)))
)
"""Projects that are archived, or whose workspace is."""
_LIVE = [state for state in RunState if state is not RunState.ENDED]
_trials_of_experiment = trials_in(_experiment.id).scalar_subquery()
_checkpoints_of_experiment = select(_stored.kept).where(_stored.experiment_id == _experiment.id).scalar_subquery()
_bytes_of_experiment = select(_stored.size).where(_stored.experiment_id == _experiment.id).scalar_subquery()
username_of_experiment = select(_user.username).where(_user.id == _experiment.user_id).scalar_subquery()
EXPERIMENT_KEYS: Mapping[str, ColumnElement[Any]] = {
    "id": _experiment.id,
    "description": _experiment.description,
    "start_time": _experiment.created_at,
    "end_time": _experiment.ended_at,
    "state": _experiment.state,
    "num_trials": _trials_of_experiment,
    "progress": _experiment.progress,
    "user": username_of_experiment,
    "name": _experiment.name,
    "forked_from": _experiment.parent_id,
    "resource_pool": _experiment.pool,
    "project_id": _experiment.project_id,
    "checkpoint_count": func.coalesce(_checkpoints_of_experiment, 0),
    "checkpoint_size": func.coalesce(_bytes_of_experiment, 0),
}
"""Keys that ``experiments`` sorts by; "searcher_metric_val" besides: which trial is the best depends on the experiment."""


def list_experiments(
    connection: Connection, criteria: ExperimentFilter, order: Order, page: Page
) -> tuple[list[Experiment], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    ids, total, begin = _ids(connection, criteria, order, page)
    by_id = {item.id: item for item in having(connection, Experiment, _experiment.id, ids)}
    return [by_id[id] for id in ids if id in by_id], total, begin


def _ids(
    connection: Connection, criteria: ExperimentFilter, order: Order, page: Page
) -> tuple[Sequence[int], int, int]:
    """As ``list_experiments``, their ids."""
    where = _experiment_conditions(criteria)
    if order.key != "searcher_metric_val":
        in_order = Sorted(
            where, sort_key(EXPERIMENT_KEYS, order, "searcher_metric_val"), _experiment.id, order.descending
        )
        if criteria.reads_every_row:  # once is enough
            ids = in_order.ids(connection, 0, Page(limit=None))
            return page.of(ids), len(ids), page.begin(len(ids))
        total = total_of(connection, Experiment, where)
        begin = page.begin(total)
        return in_order.ids(connection, begin, page), total, begin
    ids = list(connection.scalars(select(_experiment.id).where(*where)))
    values = {id: best[1] for id, best in best_trials(connection, ids).items()}
    return by_value(ids, values, order, page), len(ids), page.begin(len(ids))


def _experiment_conditions(criteria: ExperimentFilter) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = [_experiment.state != State.DELETED]
    if criteria.archived is not None:
        where.append(_experiment.archived == criteria.archived)
    if criteria.archived is False and not criteria.project_id:
        where.append(_experiment.project_id.not_in(_put_away))
    if criteria.states:
        where.append(in_states(_experiment.state, criteria.states, running_of_experiment))
    for label in criteria.labels:
        text = type_coerce(_experiment.labels, String)
        where.append(func.replace(text, json.dumps(label), "") != text)  # exact, where LIKE may ignore the case
    if criteria.name:
        where.append(func.lower(_experiment.name).contains(criteria.name.lower(), autoescape=True))
    if criteria.description:
        where.append(func.lower(_experiment.description).contains(criteria.description.lower(), autoescape=True))
    if criteria.user_ids is not None:
        where.append(_experiment.user_id.in_(criteria.user_ids))
    if criteria.ids is not None:
        where.append(_experiment.id.in_(criteria.ids))
    if criteria.not_ids:
        where.append(_experiment.id.not_in(criteria.not_ids))
    if criteria.at_least is not None:
        where.append(_experiment.id >= criteria.at_least)
    if criteria.at_most is not None:
        where.append(_experiment.id <= criteria.at_most)
    if criteria.project_id:
        where.append(_experiment.project_id == criteria.project_id)
    if criteria.parent_id is not None:
        where.append(_experiment.parent_id == criteria.parent_id)
    return where


@dataclass(slots=True, unsafe_hash=True)
class ExperimentFigures:
    """What an experiment's row does not say itself. Nobody alters what a query has told."""

    trials: int = 0
    running: int = 0  # runs that the scheduler runs now
    live: int = 0  # runs that have not ended
    suspended: int = 0  # of these, those that it has suspended
    slots_running: int = 0
    slots_live: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    best_trial: int | None = None
    best_metric: float | None = None
    trial_ids: tuple[int, ...] = ()
    external_trial_id: str = ""  # of its first trial that has one
    place: Place = Place()
    user: UserName | None = None  # who created it

    @property
    def held_slots(self) -> int | None:
        """Slots of the runs that the scheduler runs now; None: it runs none."""
        return self.slots_running if self.running else None


def experiment_figures(
    connection: Connection, experiment_ids: Sequence[int], *, trial_ids: bool = False
) -> dict[int, ExperimentFigures]:
    """Figures of each experiment. ``trial_ids`` fills in the first thousand ids of its trials too, and ``external_trial_id``."""
    figures = {id: ExperimentFigures() for id in experiment_ids}
    ids = list(experiment_ids)
    for id, count in execute_in_chunks(connection, _NUMBERS_OF_TRIALS, ids):
        figures[id].trials = count
    for id, state, count, slots, suspended in execute_in_chunks(connection, _LIVE_RUNS, ids):
        figures[id].live += count
        figures[id].slots_live += int(slots)
        if state is RunState.RUNNING:
            figures[id].running += count
            figures[id].slots_running += int(slots)
            figures[id].suspended += int(suspended)
    for id, (count, size) in sizes_of_experiments(connection, experiment_ids).items():
        figures[id].checkpoints, figures[id].checkpoint_bytes = count, size
    for id, (trial_id, value) in best_trials(connection, experiment_ids).items():
        figures[id].best_trial, figures[id].best_metric = trial_id, value
    for id, place in places_of_experiments(connection, experiment_ids).items():
        figures[id].place = place
    for id, user in users_of_experiments(connection, experiment_ids).items():
        figures[id].user = user
    if trial_ids:
        for id in experiment_ids:
            figures[id].trial_ids = tuple(trial for (trial,) in connection.execute(_FIRST_TRIALS, {"experiment": id}))
            for (external_id,) in connection.execute(_FIRST_NAMED, {"experiment": id}):
                figures[id].external_trial_id = external_id
    return figures


_NUMBERS_OF_TRIALS = select(_experiment.id, _trials_of_experiment).where(_experiment.id.in_(VALUES))
_LIVE_RUNS = (
    select(
        _run.experiment_id,
        _run.state,
        func.count(),
        func.sum(_run.slots),
        func.sum(case((_run.reason == SUSPENDED, 1), else_=0)),
    )
    .where(_run.experiment_id.in_(VALUES), _run.state.in_(_LIVE))
    .group_by(_run.experiment_id, _run.state)
)
_FIRST_TRIALS = (
    select(_trial.id).where(_trial.experiment_id == bindparam("experiment")).order_by(_trial.id).limit(_TRIAL_IDS)
)
_FIRST_NAMED = (
    select(_trial.external_id)
    .where(_trial.experiment_id == bindparam("experiment"), _trial.external_id > "")  # along an index
    .order_by(_trial.id)
    .limit(1)
)


def labels(connection: Connection, project_id: int | None = None) -> list[str]:
    """All labels in use, the most popular first. ``project_id``: those of its experiments (None or 0: of all)."""
    counts: dict[str, int] = {}
    where = _experiment_conditions(ExperimentFilter(project_id=project_id))
    alike = select(_experiment.labels, func.count()).where(*where).group_by(_experiment.labels)
    for names, count in connection.execute(alike):
        for name in names:
            counts[name] = counts.get(name, 0) + count
    return sorted(counts, key=lambda name: (-counts[name], name))
