"""Tasks: what runs belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from dethpc.domain.facts import Run, Task
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.state import rows
from dethpc.state.queries.page import Order, Page, Sorted, having, one, sort_key, total_of

_task = rows.table(Task).c
_run = rows.table(Run).c


def task(connection: Connection, task_id: str) -> Task:
    """Raises: NotFound."""
    return one(connection, Task, f"task {task_id}", id=task_id)


def task_is_over(connection: Connection, task_id: str) -> bool:
    """Whether nothing of the task will be written any more: it has ended and so have its runs."""
    state = connection.scalar(select(_task.state).where(_task.id == task_id))
    live = select(_run.id).where(_run.task_id == task_id, _run.state != RunState.ENDED).limit(1)
    return state is None or (state.terminal and connection.scalar(live) is None)


TASK_KEYS: Mapping[str, ColumnElement[Any]] = {
    "id": _task.id,
    "description": _task.name,
    "start_time": _task.created_at,
    "resource_pool": _task.pool,
}


def list_tasks(
    connection: Connection, kind: TaskKind, user_ids: Sequence[int] | None, order: Order, page: Page
) -> tuple[list[Task], int, int]:
    """The page of tasks of a kind, the total, and where the page begins. ``user_ids`` None: of everybody.

    Raises Refused for an unknown sort key."""
    where: list[ColumnElement[bool]] = [_task.kind == kind]
    if user_ids is not None:
        where.append(_task.user_id.in_(user_ids))
    total = total_of(connection, Task, where)
    begin = page.begin(total)
    ordered = Sorted(where, sort_key(TASK_KEYS, order), _task.id, order.descending)
    return ordered.page(connection, Task, begin, page), total, begin


def list_launched(
    connection: Connection, kinds: Sequence[TaskKind], live: bool | None, page: Page
) -> tuple[list[Task], int, int]:
    """The page of tasks of these kinds, the newest first, the total, and where the page begins. ``live``: whether they have not
    ended; None: either."""
    where: list[ColumnElement[bool]] = [_task.kind.in_(kinds)]
    if live is not None:
        where.append(_task.state.in_(_OPEN) if live else _task.state.not_in(_OPEN))
    total = total_of(connection, Task, where)
    begin = page.begin(total)
    newest_first = Sorted(where, _task.created_at, _task.id, descending=True)
    return newest_first.page(connection, Task, begin, page), total, begin


def launched_tasks(connection: Connection) -> list[Task]:
    """Those with a configuration of their own, whatever has become of them."""
    return rows.read(connection, Task, _task.kind.in_([kind for kind in TaskKind if kind.launched]))


def tasks_that_ended(connection: Connection, until: float) -> list[Task]:
    """Launched tasks, and pulls of images, that had ended by then, and so had their runs."""
    live = select(_run.id).where(_run.task_id == _task.id, _run.state != RunState.ENDED)
    kinds = [kind for kind in TaskKind if kind.launched or kind is TaskKind.IMAGE_PULL]
    query = rows.query(Task, _task.kind.in_(kinds), _task.ended_at <= until, _task.state.not_in(_OPEN), ~live.exists())
    return [Task(*row) for row in connection.execute(query)]


def runs_of_tasks(connection: Connection, task_ids: Sequence[str]) -> list[Run]:
    return having(connection, Run, _run.task_id, task_ids)


def last_runs(connection: Connection, task_ids: Sequence[str]) -> dict[str, Run]:
    """The newest run of each task that has had one."""
    runs = sorted(having(connection, Run, _run.task_id, task_ids), key=lambda run: run.number)
    return {run.task_id: run for run in runs}


def count_live_tasks(connection: Connection) -> dict[TaskKind, int]:
    """How many tasks of each kind have not ended."""
    query = select(_task.kind, func.count()).where(_task.state.in_(_OPEN)).group_by(_task.kind)
    return {row[0]: row[1] for row in connection.execute(query)}


_OPEN = [state for state in State if not state.terminal]


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
    return rows.first(connection, Task, query.order_by(_task.created_at.desc()).limit(1))
