"""What the routes of commands, notebooks, shells and TensorBoards have in common: requests, answers, and what is done to a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.domain.records import UNCATEGORIZED
from dethpc.domain.roles import Role
from dethpc.domain.states import End, RunState, State, TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.insight.reasons import of_run
from dethpc.master.durable import contexts
from dethpc.master.durable.records import Records
from dethpc.master.experiments import config_policies, filing, templates
from dethpc.master.http.access import Paging, TheOrder, ThePage, VisibleRecords
from dethpc.master.http.auth import Principal
from dethpc.master.http.models import Pagination, Shallow, Wire, time
from dethpc.master.http.nouns.contexts import File
from dethpc.master.tasks.interactive import FIELDS
from dethpc.master.tasks.launching import Launcher, NewTask
from dethpc.state import queries
from dethpc.state.queries import Order
from dethpc.state.queries.users import UserName, users_among, users_of


class LaunchRequest(Wire):
    """``environment``: base64 of that of the client's shell, which the published client does not send."""

    config: Annotated[dict[str, Any] | None, Shallow] = None
    template_name: str | None = None
    files: list[File] | None = None
    data: str | None = None
    workspace_id: int | None = None
    environment: str | None = None


class LaunchedTask(Wire):
    """``exit_code``, ``reason``, ``slots`` and ``job``, the scheduler's id of its job, are ours."""

    id: str
    description: str
    state: str
    start_time: str
    display_name: str
    user_id: int
    username: str
    resource_pool: str
    exit_status: str
    job_id: str
    workspace_id: int
    exit_code: int | None = None
    reason: str = ""
    slots: int = 0
    job: str | None = None
    nodes: list[str] = []

    @classmethod
    def fields_of(cls, task: facts.Task, run: facts.Run | None, user: UserName) -> dict[str, Any]:
        return {
            "id": task.id,
            "description": task.name,
            "state": state_of(task, run),
            "start_time": time(task.created_at),
            "display_name": user.shown,
            "username": user.name,
            "user_id": user.id,
            "resource_pool": task.pool,
            "exit_status": exit_status(task, run),
            "job_id": task.queue_id,
            "workspace_id": TaskSettings.of(task).workspace_id,
            "exit_code": run.exit_code if run is not None and task.state.terminal else None,
            "reason": task.reason or (of_run(run) if run is not None and not task.state.terminal else ""),
            "slots": task.slots,
            "job": run.scheduler_job_id if run is not None else None,
            "nodes": run.nodes if run is not None else [],
        }


class LaunchNotes(Wire):
    """``notes``: what the owner should know, in words; ours."""

    warnings: list[str] = []
    notes: list[str] = []


class SetPriority(Wire):
    priority: int


def state_of(task: facts.Task, run: facts.Run | None) -> str:
    """In Determined's words for tasks without a trial."""
    live = run is not None and run.state is not RunState.ENDED
    if task.state.terminal:
        return "STATE_TERMINATED"
    if task.state.stopping:
        return "STATE_TERMINATING"
    if task.state is State.PAUSED:
        return "STATE_TERMINATING" if live else "STATE_WAITING"
    return "STATE_RUNNING" if run is not None and run.state is RunState.RUNNING else "STATE_QUEUED"


def exit_status(task: facts.Task, run: facts.Run | None) -> str:
    """How it ended, in words; "" while it has not."""
    if not task.state.terminal:
        return ""
    if task.state is State.COMPLETED:
        return task.reason if task.reason and TaskSettings.of(task).services else "success"
    if run is not None and run.exit_code and run.end is End.USER_ERROR:
        return f"failed with exit code {run.exit_code}"
    return task.reason or task.state.value.lower()


def launch(
    launcher: Launcher, records: Records, who: Principal, kind: TaskKind, request: LaunchRequest, **more: Any
) -> tuple[facts.Task, list[str]]:
    """The task, and what its owner should know of it. ``more``: fields of ``NewTask``. Raises ConfigError, ContextError, Forbidden,
    NotFound, Refused."""
    return launcher.launch(who.owner, _new_task(records, who, kind, request, more))


def preview(
    launcher: Launcher, records: Records, who: Principal, kind: TaskKind, request: LaunchRequest, **more: Any
) -> tuple[facts.Task, list[str]]:
    """What ``launch`` would create; nothing is stored. Arguments and errors as there."""
    return launcher.preview(who.owner, _new_task(records, who, kind, request, more))


def _new_task(
    records: Records, who: Principal, kind: TaskKind, request: LaunchRequest, more: Mapping[str, Any]
) -> NewTask:
    visible = records.within(who.workspaces_as(Role.VIEWER))
    who.must_be(Role.EDITOR, request.workspace_id or UNCATEGORIZED)
    workspace = filing.open_for_task(filing.open_workspace, records, request.workspace_id or UNCATEGORIZED)
    return NewTask(
        kind,
        request.config or {},
        contexts.pack(request.files or []),
        workspace=workspace,
        policies=config_policies.policies_of(records, workspace.id, config_policies.TASKS),
        template=templates.named(visible, request.template_name) if request.template_name else None,
        environment=contexts.decoded("environment", request.environment) if request.environment else None,
        user_id=who.user_id,
        **FIELDS.get(kind, {}),
        **more,
    )


def set_priority(launcher: Launcher, records: Records, task: facts.Task, request: SetPriority) -> facts.Task:
    """Raises Refused."""
    workspace = TaskSettings.of(task).workspace_id
    policies = config_policies.policies_of(records, workspace, config_policies.TASKS)
    return launcher.set_priority(task, request.priority, policies)


class Entry(NamedTuple):
    """A task, its newest run, and who launched it."""

    task: facts.Task
    run: facts.Run | None
    user: UserName


def entry(connection: Connection, task: facts.Task) -> Entry:
    return entries(connection, [task])[0]


def entries(connection: Connection, tasks: Sequence[facts.Task]) -> list[Entry]:
    runs = queries.last_runs(connection, [task.id for task in tasks])
    users = users_of(connection, tasks)
    return [Entry(task, runs.get(task.id), users[task.user_id]) for task in tasks]


@dataclass(frozen=True)
class TaskList:
    """Which tasks of a kind a client asks for."""

    users: Sequence[str] | None
    user_ids: Sequence[int] | None
    workspace_id: int | None
    order: Order
    paging: Paging

    def of(self, connection: Connection, kind: TaskKind) -> tuple[list[Entry], Pagination]:
        """The page."""
        user_ids = users_among(connection, self.users, self.user_ids)
        if self.workspace_id is None:
            tasks, total, begin = queries.list_tasks(connection, kind, user_ids, self.order, self.paging.page)
            return entries(connection, tasks), self.paging.pagination(total, begin, len(tasks))
        # The workspace is in no column.
        tasks, _, _ = queries.list_tasks(connection, kind, user_ids, self.order, Paging().page)
        members = [task for task in tasks if TaskSettings.of(task).workspace_id == self.workspace_id]
        tasks, pagination = self.paging.of(members)
        return entries(connection, tasks), pagination


def _list_query(
    sorting: TheOrder,
    paging: ThePage,
    visible: VisibleRecords,
    users: Annotated[list[str] | None, Query()] = None,
    user_ids: Annotated[list[int] | None, Query(alias="userIds")] = None,
    workspace_id: Annotated[int | None, Query(alias="workspaceId")] = None,
) -> TaskList:
    """Raises NotFound where there is no such workspace, or no more."""
    if workspace_id:
        filing.workspace(visible, workspace_id)
    return TaskList(users, user_ids, workspace_id or None, sorting.order("start_time"), paging)


TheTasks = Annotated[TaskList, Depends(_list_query)]
