"""The tables that requests filter and sort by columns of their choice: of experiments, and of runs, as Determined calls trials."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, String, bindparam, case, cast, func, literal, or_, select

from dethpc.domain.facts import Checkpoint, Experiment, Run, Task, Trial
from dethpc.domain.filters import Filter, Sorting
from dethpc.domain.records import ArchivedTrial, Project, Workspace
from dethpc.domain.states import CheckpointState, RunState, State
from dethpc.state import rows
from dethpc.state.columns import Number
from dethpc.state.dialects import VALUES, execute_in_chunks
from dethpc.state.queries.experiments import EXPERIMENT_KEYS, running_of_experiment, username_of_experiment
from dethpc.state.queries.filtering import Column, Listing, chosen
from dethpc.state.queries.page import Page, having
from dethpc.state.queries.projects import Place, places_of_experiments
from dethpc.state.queries.trials import TRIAL_KEYS, best_of_experiment, trials_by_id

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_run = rows.table(Run).c
_task = rows.table(Task).c
_checkpoint = rows.table(Checkpoint).c
_project = rows.table(Project).c
_workspace = rows.table(Workspace).c

_NOW: ColumnElement[float] = bindparam("now", type_=Number, callable_=time.time)


def _duration(begin: ColumnElement[Any], row: Any) -> ColumnElement[Any]:
    seconds: ColumnElement[Any] = func.coalesce(row.ended_at, _NOW) - begin - row.ended_seconds
    return seconds


_PARENT_ARCHIVED = (
    select(or_(_project.archived, _workspace.archived))
    .where(_project.id == _experiment.project_id, _workspace.id == _project.workspace_id)
    .scalar_subquery()
)
_FIRST_NAMED = (
    select(_trial.external_id)
    .where(_trial.experiment_id == _experiment.id, _trial.external_id > "")
    .order_by(_trial.id)
    .limit(1)
    .scalar_subquery()
)
_BEST_VALUE = (
    select(_trial.best_validation)
    .where(_trial.id == best_of_experiment)
    .correlate_except(rows.table(Trial))
    .scalar_subquery()
)
_SEARCHER = Column(_experiment.config, "text", path="searcher.name")

_COMMON = {
    "searcherType": _SEARCHER,
    "searcherMetric": Column(_experiment.metric),
    "tags": Column(_experiment.labels, "labels"),
    "user": Column(username_of_experiment, "user", _experiment.user_id),
    "forkedFrom": Column(_experiment.parent_id, "number"),
    "resourcePool": Column(_experiment.pool),
    "projectId": Column(_experiment.project_id, "number"),
    "externalExperimentId": Column(_experiment.external_id),
}
_PERCENT = Column(func.round(_experiment.progress * 100), "number")

EXPERIMENTS = Listing(
    noun="experiments",
    location="EXPERIMENT",
    source=rows.table(Experiment),
    id=_experiment.id,
    trial_id=best_of_experiment,
    running=running_of_experiment,
    archived=_experiment.archived,
    columns={
        **_COMMON,
        "id": Column(_experiment.id, "number"),
        "name": Column(_experiment.name),
        "description": Column(_experiment.description),
        "startTime": Column(_experiment.created_at, "date"),
        "endTime": Column(_experiment.ended_at, "date"),
        "duration": Column(_duration(_experiment.created_at, _experiment), "number"),
        "state": Column(_experiment.state, "state"),
        "numTrials": Column(EXPERIMENT_KEYS["num_trials"], "number"),
        "progress": _PERCENT,
        "checkpointSize": Column(EXPERIMENT_KEYS["checkpoint_size"], "number"),
        "checkpointCount": Column(EXPERIMENT_KEYS["checkpoint_count"], "number"),
        "searcherMetricsVal": Column(_BEST_VALUE, "number"),
        "externalTrialId": Column(_FIRST_NAMED),
        "archived": Column(_experiment.archived, "flag"),
    },
    json={"HYPERPARAMETERS": ("hp.", "hyperparameters.", _experiment.config)},
)

_ALONE = select(rows.table(ArchivedTrial).c.trial_id)
_ARCHIVED = or_(_experiment.archived, _trial.id.in_(_ALONE))
_RUNNING = (
    select(literal(1))
    .where(_task.trial_id == _trial.id, _run.task_id == _task.id, _run.state == RunState.RUNNING)
    .exists()
)
_STORED = (
    select(func.count())
    .where(_checkpoint.trial_id == _trial.id, _checkpoint.state != CheckpointState.DELETED)
    .scalar_subquery()
)
_KEY = select(_project.key).where(_project.id == _experiment.project_id).scalar_subquery()
_BEGIN = func.coalesce(_trial.started_at, _trial.created_at)

RUNS = Listing(
    noun="runs",
    location="RUN",
    source=rows.table(Trial).join(rows.table(Experiment), _experiment.id == _trial.experiment_id),
    id=_trial.id,
    trial_id=_trial.id,
    running=_RUNNING,
    archived=_ARCHIVED,
    columns={
        **_COMMON,
        "id": Column(_trial.id, "number"),
        "experimentId": Column(_experiment.id, "number"),
        "experimentName": Column(_experiment.name),
        "experimentDescription": Column(_experiment.description),
        "startTime": Column(_BEGIN, "date"),
        "endTime": Column(_trial.ended_at, "date"),
        "duration": Column(_duration(_BEGIN, _trial), "number"),
        "state": Column(_trial.state, "state"),
        "experimentProgress": _PERCENT,
        "checkpointSize": Column(TRIAL_KEYS["checkpoint_size"], "number"),
        "checkpointCount": Column(_STORED, "number"),
        "searcherMetricsVal": Column(_trial.best_validation, "number"),
        "externalRunId": Column(_trial.external_id),
        "isExpMultitrial": Column(_experiment.config, "multitrial", path="searcher.name"),
        "localId": Column(_KEY + "-" + cast(_trial.id, String)),
        "parentArchived": Column(_PARENT_ARCHIVED, "flag"),
        "archived": Column(case((_ARCHIVED, True), else_=False), "flag"),
    },
    json={
        "RUN_HYPERPARAMETERS": ("hp.", "", _trial.hparams),
        "RUN_METADATA": ("metadata.", "", _trial.metadata),
    },
)


def ids_of_experiments(
    connection: Connection, project_id: int | None, criteria: Filter, orders: Sequence[Sorting], page: Page
) -> tuple[list[int], int, int]:
    """See ``filtering.chosen``. ``project_id`` None or 0: of all projects."""
    return chosen(connection, EXPERIMENTS, _in_project(project_id), criteria, orders, page)


def ids_of_runs(
    connection: Connection,
    project_id: int | None,
    criteria: Filter,
    orders: Sequence[Sorting],
    page: Page,
) -> tuple[list[int], int, int]:
    """See ``filtering.chosen``. ``project_id`` None or 0: of all projects."""
    return chosen(connection, RUNS, _in_project(project_id), criteria, orders, page)


def _in_project(project_id: int | None) -> list[ColumnElement[bool]]:
    there = _experiment.state != State.DELETED
    return [there, _experiment.project_id == project_id] if project_id else [there]


class RunRow(NamedTuple):
    """A trial with what its row in a table shows of others. ``archived``: itself, whatever its experiment is."""

    trial: Trial
    experiment: Experiment
    archived: bool
    place: Place
    project_key: str
    parent_archived: bool  # its project or its workspace is


def run_rows(connection: Connection, trial_ids: Sequence[int]) -> list[RunRow]:
    """In the order of the ids, of those that there are and whose experiments were not deleted."""
    trials = trials_by_id(connection, trial_ids)
    ids = sorted({trial.experiment_id for trial in trials})
    experiments = {fact.id: fact for fact in having(connection, Experiment, _experiment.id, ids)}
    places = places_of_experiments(connection, ids)
    parents = {id: (key, archived) for id, key, archived in execute_in_chunks(connection, _PARENTS, ids)}
    archived = {id for (id,) in execute_in_chunks(connection, _ARCHIVED_ONES, trial_ids)}
    rows_of_runs = []
    for trial in trials:
        experiment = experiments[trial.experiment_id]
        if experiment.state is not State.DELETED:
            place, parent = places.get(experiment.id, Place()), parents.get(experiment.id, ("", False))
            rows_of_runs.append(RunRow(trial, experiment, trial.id in archived, place, parent[0], bool(parent[1])))
    return rows_of_runs


_PARENTS = (
    select(_experiment.id, _project.key, or_(_project.archived, _workspace.archived))
    .join(rows.table(Project), _project.id == _experiment.project_id)
    .join(rows.table(Workspace), _workspace.id == _project.workspace_id)
    .where(_experiment.id.in_(VALUES))
)
_ARCHIVED_ONES = _ALONE.where(rows.table(ArchivedTrial).c.trial_id.in_(VALUES))
