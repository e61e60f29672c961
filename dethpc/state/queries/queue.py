"""What readers ask of the job queue: which experiments and tasks want slots, and how many they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, or_, select

from dethpc.domain.facts import Experiment, Run, Task, Trial
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.state import rows

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_run = rows.table(Run).c
_task = rows.table(Task).c


@dataclass(slots=True)
class Job:
    """An experiment, or a task of its own, in the queue."""

    id: str  # of the experiment or the task
    queue_id: str
    kind: TaskKind
    name: str
    owner: str
    pool: str
    created_at: float
    priority: int
    weight: float
    queue_position: float
    slots: int  # of each of its runs
    progress: float = 0.0
    slots_wanted: int = 0  # by all its members that could run now
    slots_live: int = 0  # that its runs hold or wait for
    slots_running: int = 0


_COLUMNS = ("queue_id", "kind", "name", "owner", "pool", "created_at", "priority", "weight", "queue_position")


def jobs(connection: Connection, pool: str | None = None) -> list[Job]:
    """Jobs that want slots, by pool and age; in which order they are served is the pool's matter."""
    jobs = [*_experiments(connection, pool), *_tasks(connection, pool)]
    return sorted(jobs, key=lambda job: (job.pool, job.created_at))


def _experiments(connection: Connection, pool: str | None) -> list[Job]:
    in_queue = [_experiment.state == State.ACTIVE, _experiment.kind == TaskKind.TRIAL]
    if pool is not None:
        in_queue.append(_experiment.pool == pool)
    columns = [_experiment[name] for name in ("id", *_COLUMNS, "slots_per_trial", "progress")]
    jobs = {
        row[0]: Job(str(row[0]), *row[1:])
        for row in connection.execute(select(*columns).where(*in_queue).order_by(_experiment.id))
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
    columns = [_task[name] for name in ("id", *_COLUMNS, "slots")]
    query = select(*columns).where(*in_queue).order_by(_task.id)
    jobs = {row[0]: Job(*row) for row in connection.execute(query)}
    for job in jobs.values():
        job.slots_wanted = job.slots
    _count_live(connection, jobs, _run.task_id, select(_task.id).where(*in_queue))
    return list(jobs.values())


def _count_live(connection: Connection, jobs: Mapping[Any, Job], of: ColumnElement[Any], ids: Select[Any]) -> None:
    """``of``: the column of a run that names what the job is."""
    running = func.sum(case((_run.state == RunState.RUNNING, _run.slots), else_=0))
    live = (
        select(of, func.sum(_run.slots), running)
        .where(of.in_(ids), or_(*(_run.state == state for state in _LIVE)))
        .group_by(of)
    )
    for id, slots, slots_running in connection.execute(live):
        jobs[id].slots_live, jobs[id].slots_running = int(slots), int(slots_running)


_LIVE = [state for state in RunState if state is not RunState.ENDED]
