"""Tasks: what runs belong to."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Select, select

from dethpc.domain.facts import Run, Task
from dethpc.domain.states import RunState
from dethpc.state import rows
from dethpc.state.queries.page import one

_task = rows.table(Task).c
_run = rows.table(Run).c


def task(connection: Connection, task_id: str) -> Task:
    """Raises: NotFound."""
    return one(connection, Task, _task.id == task_id, f"task {task_id}")


def of_trial(trial_id: int | ColumnElement[int]) -> Select[tuple[str]]:
    """The id of the trial's task, for a condition on runs or attempts."""
    return select(_task.id).where(_task.trial_id == trial_id)


def trials_of_tasks(connection: Connection, experiment_id: int) -> dict[str, int]:
    """The trial of each task of the experiment."""
    of_trials = (_task.experiment_id == experiment_id, _task.trial_id.is_not(None))
    query = select(_task.id, _task.trial_id).where(*of_trials)
    return {str(task): int(trial) for task, trial in connection.execute(query)}


def live_runs(connection: Connection) -> list[tuple[Run, Task]]:
    """Every run that has not ended, with its task."""
    live = [state for state in RunState if state is not RunState.ENDED]
    runs = rows.read(connection, Run, _run.state.in_(live))
    tasks = rows.read(connection, Task, _task.id.in_(select(_run.task_id).where(_run.state.in_(live))))
    of = {task.id: task for task in tasks}
    return [(run, of[run.task_id]) for run in runs]
