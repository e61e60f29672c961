"""What ``det command``, ``det notebook``, ``det shell`` and ``det tensorboard`` have in common. Notebooks and TensorBoards have a
page, which is opened once it is there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.commands.create import INCLUDES
from dethpc.cli.connect import connect, reconnect
from dethpc.cli.group import LazyGroup
from dethpc.cli.output import Json

if TYPE_CHECKING:
    from dethpc.config.source import Source

COLUMNS = [
    tables.Column("ID", "id", tables.TASK),
    tables.Column("Description", "description", least=16),
    tables.Column("User", "username", rank=2),
    tables.Column("State", lambda row: output.state(row.get("state"))),
    tables.Column("Started", "startTime", tables.AGE, rank=1),
    tables.Column("Exit status", "exitStatus", least=10),
    tables.Column("Pool", "resourcePool", rank=1),
    tables.Column("Workspace", "workspaceName", rank=2),
    tables.Column("Slots", "slots", tables.COUNT, rank=1),
    tables.Column("Slurm job", "job", rank=2),
]


class Noun(NamedTuple):
    """``plural`` as paths of the API have it, ``key`` as answers have it."""

    name: str
    plural: str
    key: str


CONTEXT = click.option(
    "-c",
    "--context",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Send the files of this folder; the task starts beside them.",
)


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of what launches a task; the command takes them as ``launch``."""
    for option in reversed(
        [
            click.option(
                "--config-file", type=click.File(encoding="utf-8"), help="YAML with the task's configuration."
            ),
            click.option(
                "--config",
                "overrides",
                multiple=True,
                metavar="KEY=VALUE",
                help="Override a field, such as resources.slots=2 (repeatable).",
            ),
            click.option(
                "-v",
                "--volume",
                "volumes",
                multiple=True,
                metavar="HOST:PATH",
                help="Mount a folder in the task's container.",
            ),
            CONTEXT,
            INCLUDES,
            click.option("-w", "--workspace-name", metavar="NAME", help="The workspace that it belongs to."),
            click.option("--template", metavar="NAME", help="Lay the configuration over this template."),
            click.option("-d", "--detach", is_flag=True, help="Do not wait: print the id alone."),
        ]
    ):
        command = option(command)
    return command


def launch(noun: Noun, options: Json, body: Optional[Json] = None, **fields: Any) -> Json:
    """Launch it as the options of ``launch_options`` say, with warnings on standard error; the wire's answer. ``fields``: of its
    configuration, where the options leave them out. ``body``: more of the request."""
    from dethpc.cli.commands.create import located
    from dethpc.client.nouns import tasks, workspaces

    session = connect()
    source = _source(options, fields)
    workspace = options["workspace_name"]
    files = _files(options)
    more = {"workspaceId": workspaces.workspace(session, workspace)["id"]} if workspace else {}
    try:
        with located(source):
            answer = tasks.launch(
                session, noun.plural, source.data, files, templateName=options["template"], **more, **(body or {})
            )
    except KeyboardInterrupt:
        output.say(f"\nThe {noun.name} may have been launched all the same: det {noun.name} list")
        raise
    output.say_notes(answer)
    return answer


def _source(options: Json, fields: Json) -> Source:
    """The configuration. Raises ConfigError."""
    from dethpc import errors
    from dethpc.cli.commands.create import read_config
    from dethpc.config.combine import override
    from dethpc.config.source import read

    file = options["config_file"]
    source, problems = read(read_config(file) if file else "{}", file.name if file else "config")
    problems += override(source, options["overrides"])
    if problems:
        raise errors.ConfigError(problems)
    config: Json = source.data
    for volume in options["volumes"]:
        host, colon, inside = volume.partition(":")
        if not colon:
            raise click.BadParameter(f"{volume!r} is no HOST:PATH", param_hint="--volume")
        config.setdefault("bind_mounts", []).append({"host_path": host, "container_path": inside})
    source.data = {**{name: value for name, value in fields.items() if value}, **config}
    return source


def _files(options: Json) -> list[Json]:
    from dethpc.cli.commands.create import packed

    return packed(options["context"], options["includes"]) if options["context"] or options["includes"] else []


def follow(noun: Noun, task_id: str) -> Json:
    """Print its log until it ends; the task as it is then. An interrupt asks what is to become of it."""
    from dethpc.cli.commands.logs import Options, show_task
    from dethpc.client.nouns import tasks

    session = connect()
    try:
        next(row for _, row in progress(noun, task_id) if output.state(row["state"]) in ("RUNNING", "TERMINATED"))
        show_task(session, task_id, Options(follow=True))
    except KeyboardInterrupt:
        _interrupted(session, noun, task_id)
    row: Json = tasks.get(reconnect(session)(), noun.plural, task_id)[noun.key]
    return row


def exit_as_ended(noun: Noun, row: Json) -> NoReturn:
    """Say why a task has ended that is to serve something. Raises Exit."""
    why = row.get("reason") or row["exitStatus"]
    output.say(f"{noun.name} {row['id']} has ended: {why}. Its log: det {noun.name} logs {row['id']}")
    raise click.exceptions.Exit(row.get("exitCode") or 1)


def _interrupted(session: Any, noun: Noun, task_id: str) -> None:
    output.say("")
    if sys.stdin.isatty() and click.confirm(f"Kill {noun.name} {task_id}?", default=False, err=True):
        output.say(_end(session, noun, task_id))
    else:
        output.say(
            f"The {noun.name} continues. Its log: det {noun.name} logs -f {task_id}; end it: det {noun.name} kill {task_id}"
        )
    raise click.exceptions.Exit(130)


def add_commands(group: LazyGroup, noun: Noun, columns: Sequence[tables.Column] = COLUMNS) -> None:
    """``list``, ``describe``, ``logs``, ``kill``, ``config`` and ``set priority`` of the noun."""
    one = click.argument("task_id", metavar="ID")
    group.add_command(_list(noun, columns))
    group.add_command(_describe(noun, one, columns))
    group.add_command(_logs(noun, one))
    group.add_command(_kill(noun))
    group.add_command(_show_config(noun, one))
    group.add_command(_set(noun, one))


_SORTED_BY = {
    name: name for name in ("id", "username", "description", "state", "exitStatus", "resourcePool", "startTime")
} | {"workspaceName": "workspaceId"}
"""Fields that Determined sorts by."""


def _list(noun: Noun, columns: Sequence[tables.Column]) -> click.Command:
    @click.command("list", help=f"List {noun.plural}, those that have ended too with --all.")
    @click.option("-a", "--all", "every", is_flag=True, help="Also those that have ended, and those of other users.")
    @click.option("-q", "--quiet", is_flag=True, help="Print ids alone.")
    @click.option("-w", "--workspace-name", metavar="NAME", help="Only those of this workspace.")
    @click.option("--sort-by", type=click.Choice(list(_SORTED_BY)), default="startTime", help="Sort by this field.")
    @click.option("--order-by", type=click.Choice(["asc", "desc"]), default="asc", help="In this order.")
    @listing
    def list_tasks(
        every: bool, quiet: bool, workspace_name: Optional[str], layout: tables.Layout, **order: str
    ) -> None:
        from dethpc.client.nouns import tasks, users, workspaces

        session = connect()
        workspace = workspaces.workspace(session, workspace_name)["id"] if workspace_name else None
        user = None if every else users.own_id(session)
        rows = tasks.listing(session, noun.plural, workspaceId=workspace, userIds=user)
        rows.sort(key=lambda row: str(row[_SORTED_BY[order["sort_by"]]]), reverse=order["order_by"] == "desc")
        rows = rows if every else [row for row in rows if output.state(row["state"]) != "TERMINATED"]
        if quiet:
            output.echo("\n".join(row["id"] for row in rows)) if rows else None
            return
        shown = rows if layout.as_json else _with_workspaces(session, rows)
        tables.show(tables.Table(list(columns), shown), layout)
        if not (rows or every or layout.as_json):
            whose = f"No {noun.name} of yours waits or runs"
            output.say(f"{whose}; with --all those of all users, and those that have ended")

    return list_tasks


def _with_workspaces(session: Any, rows: Sequence[Json]) -> list[Json]:
    from dethpc.client.nouns import workspaces

    names = {row["id"]: row["name"] for row in workspaces.workspaces(session)}
    return [{**row, "workspaceName": names.get(row["workspaceId"], "")} for row in rows]


def _describe(noun: Noun, one: Callable[[Any], Any], columns: Sequence[tables.Column]) -> click.Command:
    @click.command("describe", help=f"Show a {noun.name}.")
    @one
    @output.as_csv
    @output.as_json
    def describe(task_id: str, as_csv: bool, as_json: bool) -> None:
        from dethpc.client.nouns import tasks

        session = connect()
        row = tasks.get(session, noun.plural, tasks.named(session, noun.plural, task_id))[noun.key]
        if as_json:
            output.print_json(row)
            return
        (row,) = _with_workspaces(session, [row])
        if as_csv:
            tables.show(tables.Table(list(columns), [row]), tables.Layout(as_csv=True))
            return
        whole = tasks.launched_task(session, row["id"])["task"]
        output.print_fields(
            [
                ("ID", row["id"]),
                ("Description", row["description"]),
                ("State", output.state(row["state"])),
                ("Reason", row.get("reason") or "-"),
                ("Exit status", row.get("exitStatus") or "-"),
                ("User", row["username"]),
                ("Workspace", row["workspaceName"]),
                ("Started", output.when(row["startTime"])),
                ("Ended", output.when(whole.get("endTime"))),
                ("Time limit", output.when(whole.get("endsAt"))),
                ("Idle, ends", output.when(whole.get("idleEndsAt"))),
                ("Pool", f"{row['resourcePool']}, {output.plural(row.get('slots') or 0, 'slot')}"),
                ("Slurm job", row.get("job") or "-"),
                ("Nodes", ", ".join(row.get("nodes") or []) or "-"),
            ]
        )

    return describe


def _logs(noun: Noun, one: Callable[[Any], Any]) -> click.Command:
    from dethpc.cli.commands.logs import Options, log_options, show_task

    @click.command("logs", help=f"Show the log of a {noun.name}.")
    @one
    @log_options
    def logs(task_id: str, **options: Any) -> None:
        from dethpc.client.nouns import tasks

        session = connect()
        show_task(session, tasks.named(session, noun.plural, task_id), Options.of(options))

    return logs


def _end(session: Any, noun: Noun, task_id: str) -> str:
    """Kill the task; what has become of it, in words."""
    from dethpc.client.nouns import tasks

    row = tasks.get(session, noun.plural, task_id)[noun.key]
    if output.state(row["state"]) == "TERMINATED":
        return f"{noun.name.capitalize()} {task_id} has ended before ({row['exitStatus']}): nothing to do"
    tasks.kill(session, noun.plural, task_id)
    return f"Killed {noun.name} {task_id}"


def _kill(noun: Noun) -> click.Command:
    @click.command("kill", help=f"End {noun.plural} at once.")
    @click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
    @click.option("-f", "--force", is_flag=True, help="Go on with the others where one cannot be killed.")
    def kill(task_ids: Sequence[str], force: bool) -> None:
        from dethpc import errors
        from dethpc.client.nouns import tasks

        session = connect()
        for text in task_ids:
            try:
                task_id = tasks.named(session, noun.plural, text)
                done = _end(session, noun, task_id)
            except errors.DethpcError as error:
                if not force:
                    raise
                output.say(f"det: warning: {error}")
            else:
                output.echo(done)

    return kill


def _show_config(noun: Noun, one: Callable[[Any], Any]) -> click.Command:
    @click.command("config", help=f"Print the configuration of a {noun.name}, with all defaults.")
    @one
    @output.as_json
    def config(task_id: str, as_json: bool) -> None:
        from dethpc.client.nouns import tasks

        session = connect()
        whole = tasks.get(session, noun.plural, tasks.named(session, noun.plural, task_id))["config"]
        output.print_config(whole, as_json)

    return config


def _set(noun: Noun, one: Callable[[Any], Any]) -> click.Group:
    @click.group("set", cls=LazyGroup, help=f"Change a {noun.name} that has not ended.")
    def change() -> None:
        pass

    @change.command("priority")
    @one
    @click.argument("priority", type=click.IntRange(1, 99))
    def priority(task_id: str, priority: int) -> None:
        """Set its place in the queue of a priority pool: a smaller number comes first."""
        from dethpc.client.nouns import tasks

        session = connect()
        full = tasks.named(session, noun.plural, task_id)
        tasks.set_priority(session, noun.plural, full, priority)
        output.echo(f"Set priority of {noun.name} {full} to {priority}")

    return change


_POLL = 0.5

no_browser = click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")


def show(noun: Noun, task: dict[str, Any], path: str, *, browser: bool) -> None:
    """Wait until the task's page is there, then open it. ``path``: in it, which answers once it is there."""
    output.say(f"Launched {noun.name} (id: {task['id']}). det {noun.name} kill {task['id']} ends it.")
    wait(noun, task["id"], path)
    open_page(noun, task["id"], browser=browser)


def progress(noun: Noun, task_id: str) -> Iterator[tuple[Any, Json]]:
    """A session, and the task as it is now, again and again. Why it waits is said."""
    from dethpc.client.nouns import tasks

    again, reason = reconnect(connect()), ""
    while True:
        session = again()
        row = tasks.get(session, noun.plural, task_id)[noun.key]
        if row["reason"] != reason and output.state(row["state"]) != "TERMINATED":
            reason = row["reason"]
            output.say(reason or "It starts")
        yield session, row
        time.sleep(_POLL)


def wait(noun: Noun, task_id: str, path: Optional[str] = "") -> None:
    """Until what the task serves answers, or without ``path`` until it runs; with another exit code where the task has ended."""
    from dethpc.client.nouns import tasks

    for session, row in progress(noun, task_id):
        if output.state(row["state"]) == "TERMINATED":
            exit_as_ended(noun, row)
        # Asked before it runs, too: who may not open it hears so at once.
        answers = tasks.answers(session, task_id, path or "")
        if (answers or path is None) and output.state(row["state"]) == "RUNNING":
            return


def open_page(noun: Noun, task_id: str, *, browser: bool) -> None:
    """Print the address of its page, which is valid once, and open it in a browser."""
    from dethpc.client.nouns import tasks

    url = tasks.ticket(connect(), task_id)["url"]
    output.say(f"The {noun.name} is open, once, within five minutes, at:")
    output.echo(url)
    if browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")):
        click.launch(url)


def add_open(group: click.Group, noun: Noun, path: str) -> None:
    """``open`` of the noun."""

    @group.command("open", help=f"Open a {noun.name} in a browser, once it answers.")
    @click.argument("task_id", metavar="ID")
    @no_browser
    def open_task(task_id: str, no_browser: bool) -> None:
        from dethpc.client.nouns import tasks

        full = tasks.named(connect(), noun.plural, task_id)
        wait(noun, full, path)
        open_page(noun, full, browser=not no_browser)
