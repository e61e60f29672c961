"""Routes of launched tasks of every kind in one list: commands, notebooks, shells, TensorBoards and generic tasks. Ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from dethpc.domain.states import TaskKind
from dethpc.errors import Refused
from dethpc.master.http.access import Reading, TheLauncher, ThePage, Viewer, ViewerSomewhere
from dethpc.master.http.models import MaskedConfig, Pagination, Wire, time_or_none
from dethpc.master.http.nouns import launched
from dethpc.master.http.nouns.launched import LaunchedTask
from dethpc.master.http.nouns.tasks import type_of
from dethpc.master.http.router import new_router
from dethpc.master.tasks import launching
from dethpc.master.tasks.launching import Launcher
from dethpc.state import queries

_KINDS = {f"TASK_TYPE_{kind.value}": kind for kind in TaskKind if kind.launched}


class TaskOfAnyKind(LaunchedTask):
    """``task_state``: how it ended, where ``state`` says that it has. ``ends_at``: when the time limit of its job ends it.
    ``idle_ends_at``: when its idle_timeout does, unless it is used."""

    task_type: str
    task_state: str
    priority: int
    end_time: str | None = None
    ends_at: str | None = None
    idle_ends_at: str | None = None

    @classmethod
    def of(cls, launcher: Launcher, entry: launched.Entry) -> TaskOfAnyKind:
        task, run, _ = entry
        return cls(
            **cls.fields_of(*entry),
            task_type=type_of(task),
            task_state=f"STATE_{task.state.value}",
            priority=task.priority,
            end_time=time_or_none(task.ended_at),
            ends_at=time_or_none(launcher.ends_at(task, run) if run is not None else None),
            idle_ends_at=time_or_none(launcher.idle_ends_at(task, run) if run is not None else None),
        )


class TasksOfAnyKind(Wire):
    tasks: list[TaskOfAnyKind]
    pagination: Pagination


class TaskDetails(Wire):
    task: TaskOfAnyKind
    config: MaskedConfig


@dataclass(frozen=True)
class LaunchedTaskFilter:
    """``live``: those that have not ended, or only those that have; None: both."""

    kinds: list[TaskKind]
    live: bool | None


def _filter(
    task_types: Annotated[list[str] | None, Query(alias="taskTypes")] = None, live: bool | None = None
) -> LaunchedTaskFilter:
    """Raises Refused."""
    if unknown := [name for name in task_types or () if name not in _KINDS]:
        raise Refused(f"there is no task type {unknown[0]!r}; there are {', '.join(_KINDS)}")
    return LaunchedTaskFilter([_KINDS[name] for name in task_types or _KINDS], live)


router = new_router(prefix="/api/v1/launched-tasks", tags=["tasks"])


@router.get("")
def list_launched_tasks(
    launcher: TheLauncher,
    connection: Reading,
    who: ViewerSomewhere,
    which: Annotated[LaunchedTaskFilter, Depends(_filter)],
    paging: ThePage,
) -> TasksOfAnyKind:
    """The newest first."""
    rows, total, begin = queries.list_launched(connection, which.kinds, which.live, paging.page)
    return TasksOfAnyKind(
        tasks=[TaskOfAnyKind.of(launcher, entry) for entry in launched.entries(connection, rows)],
        pagination=paging.pagination(total, begin, len(rows)),
    )


@router.get("/{launched_task_id}")
def get_launched_task(launched_task_id: str, launcher: TheLauncher, connection: Reading, who: Viewer) -> TaskDetails:
    task = launcher.task(launched_task_id)
    row = TaskOfAnyKind.of(launcher, launched.entry(connection, task))
    return TaskDetails(task=row, config=launching.shown(task))
