"""Routes of generic tasks, which can be paused, and of the configuration and files of any launched task."""

from __future__ import annotations

import base64
import json
from typing import Any

from dethpc.domain.records import UNCATEGORIZED
from dethpc.domain.roles import Role
from dethpc.domain.secrets import masked
from dethpc.domain.states import TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.errors import NotFound, Refused
from dethpc.master.durable import contexts
from dethpc.master.experiments import config_policies, filing
from dethpc.master.http.access import Editor, EditorSomewhere, TheLauncher, TheRecords, Viewer, VisibleRecords
from dethpc.master.http.models import Wire
from dethpc.master.http.nouns.contexts import File, ModelDefinition
from dethpc.master.http.router import new_router
from dethpc.master.tasks.launching import NewTask, shown


class CreateRequest(Wire):
    """``config``: YAML; "" with ``forkedFrom``: that of the other task.

    ``environment``: base64 of that of the client's shell, which
    the published client does not send."""

    config: str = ""
    context_directory: list[File] | None = None
    forked_from: str | None = None
    inherit_context: bool | None = None
    no_pause: bool | None = None
    parent_id: str | None = None
    project_id: int | None = None
    environment: str | None = None


class Created(Wire):
    """``notes``: what the owner should know, in words; ours."""

    task_id: str
    warnings: list[str] = []
    notes: list[str] = []


class KillRequest(Wire):
    task_id: str = ""
    kill_from_root: bool | None = None


class TaskConfigAnswer(Wire):
    config: str  # JSON


router = new_router(prefix="/api/v1", tags=["tasks"])


@router.post("/generic-tasks")
def create_generic_task(
    request: CreateRequest,
    launcher: TheLauncher,
    records: TheRecords,
    visible: VisibleRecords,
    who: EditorSomewhere,
) -> Created:
    """A task that runs a program, in a tree of tasks where it names a parent."""
    parent = launcher.task(request.parent_id, TaskKind.GENERIC) if request.parent_id else None
    origin = launcher.task(request.forked_from, TaskKind.GENERIC) if request.forked_from else None
    usual = UNCATEGORIZED
    for relative in filter(None, (origin, parent)):
        settings = TaskSettings.of(relative)
        workspace_id, usual = settings.workspace_id, settings.project_id
        if who.role_in(workspace_id) < Role.VIEWER:
            raise NotFound(f"generic task {relative.id} not found")
        who.must_be(Role.EDITOR, workspace_id)
    if parent is not None and parent.state.terminal:
        raise Refused(
            f"task {parent.id} has ended ({parent.state.value}): no other can belong to it; leave parentId out"
        )
    if request.inherit_context and parent is None:
        raise Refused("inheritContext needs parentId: the context directory is that of the parent")
    config: Any = request.config
    if origin is not None and not request.config.strip():
        config = {name: value for name, value in shown(origin).items() if value is not None}
    try:
        project = filing.open_for_task(filing.open_project, visible, request.project_id or usual)
    except NotFound as refusal:
        if request.project_id:
            raise
        raise NotFound(f"{refusal}; the other task is in it: name a project that takes this one (--project)") from None
    who.must_be(Role.EDITOR, project.workspace_id)
    files_of = parent if request.inherit_context else None if request.context_directory else origin
    new = NewTask(
        TaskKind.GENERIC,
        config,
        None if files_of else contexts.pack(request.context_directory or []),
        workspace=filing.workspace(records, project.workspace_id),
        project_id=project.id,
        policies=config_policies.policies_of(records, project.workspace_id, config_policies.TASKS),
        environment=contexts.decoded("environment", request.environment) if request.environment else None,
        parent=parent,
        forked_from=origin,
        files_of=files_of,
        no_pause=bool(request.no_pause),
        user_id=who.user_id,
    )
    task, notes = launcher.launch(who.owner, new)
    return Created(task_id=task.id, notes=notes)


@router.get("/tasks/{task_id}/config")
def get_config(task_id: str, launcher: TheLauncher, who: Viewer) -> TaskConfigAnswer:
    return TaskConfigAnswer(config=json.dumps(masked(shown(launcher.task(task_id)))))


@router.get("/tasks/{task_id}/context_directory")
def get_context_directory(task_id: str, launcher: TheLauncher, who: Viewer) -> ModelDefinition:
    """The files that the task starts beside. Those who may not run code are shown no secrets of configurations among them."""
    task = launcher.task(task_id)
    targz = launcher.context(task)
    usable = who.role_in(TaskSettings.of(task).workspace_id) >= Role.EDITOR
    shown_files = targz if usable else contexts.without_secrets(targz)
    return ModelDefinition(b64_tgz=base64.b64encode(shown_files).decode())


@router.post("/tasks/{task_id}/kill")
def kill_generic_task(task_id: str, request: KillRequest, launcher: TheLauncher, who: Editor) -> dict[str, Any]:
    """End the task and those below it in its tree, or the whole tree: none of them, if this user may not act on one."""
    members = launcher.live_tree(launcher.task(task_id), from_root=bool(request.kill_from_root))
    for member in members:
        who.must_be(Role.EDITOR, TaskSettings.of(member).workspace_id)
    launcher.kill_all(members)
    return {}


@router.post("/tasks/{task_id}/pause")
def pause_generic_task(task_id: str, launcher: TheLauncher, who: Editor) -> dict[str, Any]:
    """End its job; it begins anew when it goes on."""
    launcher.pause(task_id)
    return {}


@router.post("/tasks/{task_id}/unpause")
def unpause_generic_task(task_id: str, launcher: TheLauncher, who: Editor) -> dict[str, Any]:
    launcher.unpause(task_id)
    return {}
