"""What readers ask of the job queue: which experiments and tasks want slots, and how many they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, or_, select

from dethpc.domain.facts import Experiment, Run, Task, Trial
from dethpc.domain.records import UNCATEGORIZED, Project
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.state import rows

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_run = rows.table(Run).c
_task = rows.table(Task).c
_project = rows.table(Project).c


@dataclass(slots=True)
class Job:
    """An experiment, or a task of its own, in the queue."""

    id: str  # of the experiment or the task
    queue_id: str
    kind: TaskKind
    name: str
    owner: str
    user_id: int
    pool: str
    created_at: float
    priority: int
    weight: float
    queue_position: float
    slots: int  # of each of its runs
    _: KW_ONLY
    project_id: int = UNCATEGORIZED  # 0: a task that is in no project
    progress: float = 0.0
    slots_wanted: int = 0  # by all its members that could run now
    slots_live: int = 0  # that its runs hold or wait for
    slots_running: int = 0
    runs_running: int = 0  # of which each may have no slots
    workspace_id: int = UNCATEGORIZED


_COLUMNS = (
    "queue_id",
    "kind",
    "name",
    "owner",
    "user_id",
    "pool",
    "created_at",
    "priority",
    "weight",
    "queue_position",
)


def jobs(connection: Connection, pool: str | None = None) -> list[Job]:
    """Jobs that want slots, by pool and age; in which order they are served is the pool's matter."""
    jobs = [*_experiments(connection, pool), *_tasks(connection, pool)]
    return sorted(jobs, key=lambda job: (job.pool, job.created_at))


def _experiments(connection: Connection, pool: str | None) -> list[Job]:
    in_queue = [_experiment.state == State.ACTIVE, _experiment.kind == TaskKind.TRIAL]
    if pool is not None:
        in_queue.append(_experiment.pool == pool)
    columns = [_experiment[name] for name in ("id", *_COLUMNS, "slots_per_trial", "project_id", "progress")]
    query = (
        select(*columns, func.coalesce(_project.workspace_id, UNCATEGORIZED))
        .outerjoin(rows.table(Project), _project.id == _experiment.project_id)
        .where(*in_queue)
        .order_by(_experiment.id)
    )
    jobs = {
        id: Job(str(id), *rest, project_id=project, progress=done, workspace_id=workspace)
        for id, *rest, project, done, workspace in connection.execute(query)
    }
    ids = select(_experiment.id).where(*in_queue)
    wanting = (
        select(_trial.experiment_id, func.count())
        .where(_trial.experiment_id.in_(ids), _trial.state == State.ACTIVE)
        .group_by(_trial.experiment_id)
    )
    for experiment_id, count in connection.execute(wanting):
        jobs[experiment_id].slots_wanted = count * jobs[experiment_id].slots
    _count_live(connection, jobs, _run.experiment_id, ids)
    return list(jobs.values())


def _tasks(connection: Connection, pool: str | None) -> list[Job]:
    """Tasks without a trial."""
    in_queue = [_task.state == State.ACTIVE, _task.trial_id.is_(None)]
    if pool is not None:
        in_queue.append(_task.pool == pool)
    selected = [_task[name] for name in ("id", *_COLUMNS, "slots", "config")]
    query = select(*selected).where(*in_queue).order_by(_task.id)
    jobs = {}
    for *columns, config in connection.execute(query):
        job = jobs[columns[0]] = Job(*columns)
        job.project_id = config.get("project_id", UNCATEGORIZED) if job.kind is TaskKind.GENERIC else 0
        job.workspace_id = config.get("workspace_id", UNCATEGORIZED)
        job.slots_wanted = job.slots
    _count_live(connection, jobs, _run.task_id, select(_task.id).where(*in_queue))
    return list(jobs.values())


def _count_live(connection: Connection, jobs: Mapping[Any, Job], of: ColumnElement[Any], ids: Select[Any]) -> None:
    """``of``: the column of a run that names what the job is."""
    running = func.sum(case((_run.state == RunState.RUNNING, _run.slots), else_=0))
    runs = func.sum(case((_run.state == RunState.RUNNING, 1), else_=0))
    live = (
        select(of, func.sum(_run.slots), running, runs)
        .where(of.in_(ids), or_(*(_run.state == state for state in _LIVE)))
        .group_by(of)
    )
    for id, slots, slots_running, runs_running in connection.execute(live):
        job = jobs[id]
        job.slots_live, job.slots_running, job.runs_running = int(slots), int(slots_running), int(runs_running)


_LIVE = [state for state in RunState if state is not RunState.ENDED]
