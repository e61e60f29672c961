"""Tasks: what runs belong to."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Select, select

from dethpc.domain.facts import Run, Task
from dethpc.domain.states import RunState, TaskKind
from dethpc.state import rows
from dethpc.state.queries.page import one

_task = rows.table(Task).c
_run = rows.table(Run).c


def task(connection: Connection, task_id: str) -> Task:
    """Raises: NotFound."""
    return one(connection, Task, f"task {task_id}", id=task_id)


def of_trial(trial_id: int | ColumnElement[int]) -> Select[tuple[str]]:
    """The id of the trial's task, for a condition on runs or attempts."""
    return select(_task.id).where(_task.trial_id == trial_id)


def live_runs(connection: Connection) -> list[tuple[Run, Task]]:
    """Every run that has not ended, with its task."""
    live = [state for state in RunState if state is not RunState.ENDED]
    runs = rows.read(connection, Run, _run.state.in_(live))
    tasks = rows.read(connection, Task, _task.id.in_(select(_run.task_id).where(_run.state.in_(live))))
    of = {task.id: task for task in tasks}
    return [(run, of[run.task_id]) for run in runs]


def last_pull(connection: Connection, name: str) -> Task | None:
    """The newest task that was to pull an image and is called so."""
    query = rows.query(Task, _task.kind == TaskKind.IMAGE_PULL, _task.name == name)
    row = connection.execute(query.order_by(_task.created_at.desc()).limit(1)).first()
    return None if row is None else Task(*row)
