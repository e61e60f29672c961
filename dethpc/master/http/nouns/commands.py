"""Routes of commands: tasks that run one program to its end."""

from __future__ import annotations

from dethpc.domain import facts
from dethpc.domain.states import TaskKind
from dethpc.master.http.access import Editor, EditorSomewhere, Reading, TheLauncher, TheRecords, Viewer, ViewerSomewhere
from dethpc.master.http.models import MaskedConfig, Pagination, Wire
from dethpc.master.http.nouns import launched
from dethpc.master.http.nouns.launched import LaunchedTask, LaunchNotes, LaunchRequest, SetPriority, TheTasks
from dethpc.master.http.router import new_router
from dethpc.master.tasks import launching
from dethpc.state.queries.users import UserName


class Command(LaunchedTask):
    @classmethod
    def of(cls, task: facts.Task, run: facts.Run | None, user: UserName) -> Command:
        return cls(**cls.fields_of(task, run, user))


class Commands(Wire):
    commands: list[Command]
    pagination: Pagination


class CommandAnswer(Wire):
    command: Command


class CommandDetails(CommandAnswer):
    config: MaskedConfig


class CommandLaunched(LaunchNotes, CommandDetails):
    pass


router = new_router(prefix="/api/v1/commands", tags=["commands"])


@router.get("")
def list_commands(tasks: TheTasks, connection: Reading, who: ViewerSomewhere) -> Commands:
    items, pagination = tasks.of(connection, TaskKind.COMMAND)
    return Commands(commands=[Command.of(*item) for item in items], pagination=pagination)


@router.post("")
def launch_command(
    request: LaunchRequest, launcher: TheLauncher, records: TheRecords, who: EditorSomewhere
) -> CommandLaunched:
    """Run a program on nodes of a resource pool."""
    task, notes = launched.launch(launcher, records, who, TaskKind.COMMAND, request)
    return CommandLaunched(command=Command.of(task, None, who.user), config=launching.shown(task), notes=notes)


@router.get("/{command_id}")
def get_command(command_id: str, launcher: TheLauncher, connection: Reading, who: Viewer) -> CommandDetails:
    task = launcher.task(command_id, TaskKind.COMMAND)
    command = Command.of(*launched.entry(connection, task))
    return CommandDetails(command=command, config=launching.shown(task))


@router.post("/{command_id}/kill")
def kill_command(command_id: str, launcher: TheLauncher, connection: Reading, who: Editor) -> CommandAnswer:
    task = launcher.kill(command_id, TaskKind.COMMAND)
    return CommandAnswer(command=Command.of(*launched.entry(connection, task)))


@router.post("/{command_id}/set_priority")
def set_priority(
    command_id: str, request: SetPriority, launcher: TheLauncher, records: TheRecords, connection: Reading, who: Editor
) -> CommandAnswer:
    task = launched.set_priority(launcher, records, launcher.task(command_id, TaskKind.COMMAND), request)
    return CommandAnswer(command=Command.of(*launched.entry(connection, task)))
