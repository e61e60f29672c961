"""Routes of shells: tasks that serve SSH for one key."""

from __future__ import annotations

from typing import Any

from dethpc.domain import facts
from dethpc.domain.roles import Role
from dethpc.domain.states import TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.master.http.access import Editor, EditorSomewhere, Reading, TheLauncher, TheRecords, Viewer, ViewerSomewhere
from dethpc.master.http.models import MaskedConfig, Pagination, Wire
from dethpc.master.http.nouns import launched
from dethpc.master.http.nouns.launched import LaunchedTask, LaunchNotes, LaunchRequest, SetPriority, TheTasks
from dethpc.master.http.router import new_router
from dethpc.master.tasks import launching
from dethpc.master.tasks.interactive import ShellKeys, unix_user
from dethpc.state.queries.users import UserName


class Shell(LaunchedTask):
    """``private_key`` is shown to those who may use the shell; ``host_public_key``, ours, is that of the shell's host."""

    addresses: list[dict[str, Any]] = []
    agent_user_group: dict[str, Any]
    private_key: str | None = None
    public_key: str
    host_public_key: str

    @classmethod
    def of(cls, task: facts.Task, run: facts.Run | None, user: UserName, *, usable: bool = False) -> Shell:
        keys = ShellKeys(**TaskSettings.of(task).details)
        return cls(
            **cls.fields_of(task, run, user),
            agent_user_group=unix_user(),
            private_key=keys.private_key if usable else None,
            public_key=keys.public_key,
            host_public_key=keys.host_public_key,
        )


class Shells(Wire):
    shells: list[Shell]
    pagination: Pagination


class ShellAnswer(Wire):
    shell: Shell


class ShellDetails(ShellAnswer):
    config: MaskedConfig


class ShellLaunched(LaunchNotes, ShellDetails):
    pass


router = new_router(prefix="/api/v1/shells", tags=["shells"])


@router.get("")
def list_shells(tasks: TheTasks, connection: Reading, who: ViewerSomewhere) -> Shells:
    items, pagination = tasks.of(connection, TaskKind.SHELL)
    return Shells(shells=[Shell.of(*item) for item in items], pagination=pagination)


@router.post("")
def launch_shell(
    request: LaunchRequest, launcher: TheLauncher, records: TheRecords, who: EditorSomewhere
) -> ShellLaunched:
    """Hold a node of a resource pool for shells."""
    keys = ShellKeys.generate()
    task, notes = launched.launch(launcher, records, who, TaskKind.SHELL, request, details=keys._asdict())
    shell = Shell.of(task, None, who.user, usable=True)
    return ShellLaunched(shell=shell, config=launching.shown(task), notes=notes)


@router.get("/{shell_id}")
def get_shell(shell_id: str, launcher: TheLauncher, connection: Reading, who: Viewer) -> ShellDetails:
    task = launcher.task(shell_id, TaskKind.SHELL)
    usable = who.role_in(TaskSettings.of(task).workspace_id) >= Role.EDITOR
    shell = Shell.of(*launched.entry(connection, task), usable=usable)
    return ShellDetails(shell=shell, config=launching.shown(task))


@router.post("/{shell_id}/kill")
def kill_shell(shell_id: str, launcher: TheLauncher, connection: Reading, who: Editor) -> ShellAnswer:
    task = launcher.kill(shell_id, TaskKind.SHELL)
    return ShellAnswer(shell=Shell.of(*launched.entry(connection, task)))


@router.post("/{shell_id}/set_priority")
def set_priority(
    shell_id: str, request: SetPriority, launcher: TheLauncher, records: TheRecords, connection: Reading, who: Editor
) -> ShellAnswer:
    task = launched.set_priority(launcher, records, launcher.task(shell_id, TaskKind.SHELL), request)
    return ShellAnswer(shell=Shell.of(*launched.entry(connection, task)))
