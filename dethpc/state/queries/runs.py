"""Runs, their attempts, and what is held against nodes."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, exists, select

from dethpc.domain.facts import Attempt, Experiment, NodeHealth, Run, Task
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.state import rows
from dethpc.state.queries.page import one
from dethpc.state.queries.tasks import of_trial

_experiments = rows.table(Experiment)
_experiment = _experiments.c
_runs = rows.table(Run)
_run = _runs.c
_attempts = rows.table(Attempt)
_attempt = _attempts.c
_tasks = rows.table(Task)
_task = _tasks.c


def run(connection: Connection, run_id: str) -> Run:
    """Raises: NotFound."""
    return one(connection, Run, f"run {run_id}", id=run_id)


def ids_of_runs(connection: Connection, experiment_id: int) -> list[str]:
    """Of all runs of the experiment's trials."""
    return list(connection.scalars(select(_run.id).where(_run.experiment_id == experiment_id).order_by(_run.id)))


def was_taken(connection: Connection, pending: Run) -> bool:
    """Whether the scheduler ever took a job of the same experiment, or task of its own, that asks for as much in the same pool."""
    own = (
        _run.task_id == pending.task_id
        if pending.experiment_id is None
        else _run.experiment_id == pending.experiment_id
    )
    alike = (own, _run.pool == pending.pool, _run.slots == pending.slots)
    return bool(connection.scalar(select(exists().where(*alike, _run.scheduler_job_id.is_not(None)))))


def has_open_jobs(connection: Connection) -> bool:
    """Whether a run that the scheduler took has not ended."""
    live = (_run.state != RunState.ENDED, _run.scheduler_job_id.is_not(None))
    return bool(connection.scalar(select(exists().where(*live))))


def ids_of_deletions(connection: Connection) -> set[str]:
    """Of the runs that removed all that they were to remove."""
    done = (_task.kind == TaskKind.CHECKPOINT_GC, _task.state == State.COMPLETED)
    return set(connection.scalars(select(_run.id).where(_run.task_id.in_(select(_task.id).where(*done)))))


def runs_of_trial(connection: Connection, trial_id: int) -> list[Run]:
    """In the order in which they were submitted."""
    return [Run(*row) for row in connection.execute(_RUNS_OF_TRIAL, {"trial": trial_id})]


_RUNS_OF_TRIAL = rows.query(Run, _run.task_id.in_(of_trial(bindparam("trial")))).order_by(_run.number)


def runs_of_job(connection: Connection, job_id: str) -> list[tuple[Run, Task]]:
    """The runs that the scheduler's job of this id executed, each with its task, in the order in which they were wanted. A job
    can execute several; a scheduler that lost its state gives ids again."""
    of_job = (_run.scheduler_job_id == job_id, ~_OF_ANOTHER_SCHEDULER)
    runs = connection.execute(rows.query(Run, *of_job).order_by(_run.created_at, _run.id))
    tasks = rows.read(connection, Task, _task.id.in_(select(_run.task_id).where(*of_job)))
    of = {task.id: task for task in tasks}
    return [(run, of[run.task_id]) for run in (Run(*row) for row in runs)]


def runs_of_task(connection: Connection, task_id: str) -> list[Run]:
    """In the order in which they were submitted."""
    query = rows.query(Run, _run.task_id == task_id).order_by(_run.number)
    return [Run(*row) for row in connection.execute(query)]


# A copy of an experiment keeps the ids of its jobs, which the scheduler gave where it comes from. Two were submitted here all the
# same: the run of a directory that was imported, by hand, and one that has a token, when the copy was continued.
_OF_ANOTHER_SCHEDULER = (_run.token_sha256 == "") & exists().where(
    _experiment.id == _run.experiment_id, _experiment.imported_run.not_in(["", _run.id])
)


def jobs_of_runs(connection: Connection, job_ids: Collection[str]) -> set[str]:
    """Which of the scheduler's jobs are, or were, those of runs."""
    query = select(_run.scheduler_job_id).where(_run.scheduler_job_id.in_(job_ids), ~_OF_ANOTHER_SCHEDULER)
    return {str(job) for job in connection.scalars(query)}


def training_times(connection: Connection, experiment_id: int) -> list[tuple[float, float | None]]:
    """From when to when each run of the experiment ran, by start; None: it still does."""
    query = select(_run.started_at, _run.ended_at, _run.state).where(
        _run.experiment_id == experiment_id, _run.started_at.is_not(None)
    )
    times = connection.execute(query.order_by(_run.started_at))
    return [(begin, (end or begin) if state is RunState.ENDED else None) for begin, end, state in times]


def attempts_of_trial(connection: Connection, trial_id: int) -> list[Attempt]:
    return rows.read(connection, Attempt, _attempt.task_id.in_(of_trial(trial_id)))


def last_attempt(connection: Connection, trial_id: int) -> Attempt | None:
    """The one that started last; None: none has."""
    return rows.first(connection, Attempt, _LAST_ATTEMPT, trial=trial_id)


_LAST_ATTEMPT = (
    rows.query(Attempt, _attempt.task_id.in_(of_trial(bindparam("trial"))))
    .join(_runs, _run.id == _attempt.run_id)
    .order_by(_run.number.desc(), _attempt.number.desc())
    .limit(1)
)


def attempts_of_task(connection: Connection, task_id: str) -> list[Attempt]:
    return rows.read(connection, Attempt, _attempt.task_id == task_id)


def attempt(connection: Connection, run_id: str, k: int) -> Attempt:
    """Raises: NotFound."""
    return one(connection, Attempt, f"allocation {run_id}.{k}", run_id=run_id, number=k)


def nodes(connection: Connection) -> list[NodeHealth]:
    """What is held against nodes."""
    return rows.read(connection, NodeHealth)
