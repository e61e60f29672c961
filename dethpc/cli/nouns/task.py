"""``det task``: whatever runs on the cluster, and generic tasks, which can be paused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import PROJECT, listing
from dethpc.cli.commands.create import INCLUDES, OVERRIDES
from dethpc.cli.commands.logs import Options, log_options, show_task
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.launched import CONTEXT
from dethpc.cli.output import Json

_ID = click.argument("task_id", metavar="ID")
_FOLLOW = click.option("-f", "--follow", is_flag=True, help="Follow its log afterwards.")
_PROJECT = click.option(
    "--project", "--project_id", "project", type=PROJECT, metavar="ID", help="Place it in this project (id or name)."
)
_COLUMNS = [
    tables.Column("Task", "taskId", tables.TASK),
    tables.Column("Name", "name", least=16),
    tables.Column("Allocation", "allocationId", rank=2),
    tables.Column("Slots", "slotsNeeded", tables.COUNT),
    tables.Column("Registered", "registeredTime", tables.AGE, rank=1),
    tables.Column(
        "Nodes", lambda row: ", ".join(part["containerId"].rpartition("@")[2] for part in row["resources"]) or "-"
    ),
    tables.Column("Pool", "resourcePool", rank=1),
    tables.Column("Slurm job", "jobId", rank=1),
    tables.Column("Waits for", "reason", rank=1),
]


@click.group(cls=LazyGroup, aliases={"ls": "list"})
def task() -> None:
    """Show what runs or waits on the cluster; create tasks that can be paused, and forked."""


@task.command("list")
@listing
def list_tasks(layout: tables.Layout) -> None:
    """List every run that waits or runs: of trials, commands and all other tasks."""
    from dethpc.client.nouns import tasks

    rows = sorted(tasks.allocations(connect()), key=lambda row: str(row["registeredTime"]))
    tables.show(tables.Table(_COLUMNS, rows), layout)


@task.command()
@_ID
@output.as_json
def describe(task_id: str, as_json: bool) -> None:
    """Show a task of any kind, with its allocations."""
    from dethpc.client.nouns import tasks

    session = connect()
    row = tasks.task(session, tasks.named_of_any_kind(session, task_id))
    if as_json:
        output.print_json(row)
        return
    output.print_fields(
        [
            ("ID", row["taskId"]),
            ("Type", row["taskType"].removeprefix("TASK_TYPE_")),
            ("State", (row.get("taskState") or "-").removeprefix("GENERIC_TASK_STATE_")),
            ("Parent", row.get("parentId") or "-"),
            ("Forked from", row.get("forkedFrom") or "-"),
            ("Started", output.when(row["startTime"])),
            ("Ended", output.when(row.get("endTime")) if row.get("endTime") else "-"),
        ]
    )
    headers = ["Allocation", "State", "Slots", "Started", "Ended", "Exit code", "Reason"]
    cells = [
        [
            allocation["allocationId"],
            output.state(allocation["state"]),
            allocation["slots"],
            output.when(allocation["startTime"]),
            output.when(allocation["endTime"]) if allocation.get("endTime") else "-",
            "-" if allocation.get("statusCode") is None else allocation["statusCode"],
            allocation.get("exitReason") or "-",
        ]
        for allocation in row["allocations"]
    ]
    tables.show(tables.plain(headers, cells))


@task.command()
@_ID
@log_options
def logs(task_id: str, **options: Any) -> None:
    """Show the log of a task of any kind."""
    from dethpc.client.nouns import tasks

    session = connect()
    show_task(session, tasks.named_of_any_kind(session, task_id), Options.of(options))


@task.command()
@click.argument("config_file", metavar="CONFIG", type=click.File(encoding="utf-8"))
@CONTEXT
@INCLUDES
@_PROJECT
@OVERRIDES
@_FOLLOW
@click.option("--fork", metavar="ID", help="Begin with the files of this task.")
@click.option(
    "-p", "--parent", metavar="ID", help="The task that this one belongs to; killing that ends this one, too."
)
@click.option("--inherit-context", "--inherit_context", is_flag=True, help="Use the files of the parent.")
@click.option("--no-pause", "--no_pause", is_flag=True, help="Make a task that cannot be paused.")
def create(
    config_file: IO[str],
    context: Optional[Path],
    includes: Sequence[Path],
    overrides: Sequence[str],
    follow: bool,
    **fields: Any,
) -> None:
    """Create a task from CONFIG (YAML), which names its entrypoint and resources.slots."""
    from dethpc import errors
    from dethpc.cli.commands.create import located, packed, read_config
    from dethpc.config.combine import override
    from dethpc.config.source import dump, read

    if fields["inherit_context"] and not fields["parent"]:
        raise click.UsageError("--inherit-context needs --parent: the files are those of the parent.")
    source, problems = read(read_config(config_file), config_file.name)
    if problems := problems + override(source, overrides):
        raise errors.ConfigError(problems)
    files = packed(context, includes) if context or includes else []
    with located(source):
        _create(
            dump(source.data),
            files,
            follow,
            projectId=fields["project"],
            forkedFrom=fields["fork"],
            parentId=fields["parent"],
            inheritContext=fields["inherit_context"],
            noPause=fields["no_pause"],
        )


@task.command()
@click.argument("parent_task_id", metavar="ID")
@_FOLLOW
@_PROJECT
def fork(parent_task_id: str, follow: bool, project: Optional[int]) -> None:
    """Create a task like another one, with its configuration and files."""
    _create("", [], follow, projectId=project, forkedFrom=parent_task_id)


def _create(text: str, files: list[Json], follow: bool, **fields: Any) -> None:
    from dethpc.client.nouns import tasks

    session = connect()
    for relative in ("forkedFrom", "parentId"):
        if fields.get(relative):
            fields[relative] = tasks.named_of_any_kind(session, fields[relative])
    answer = tasks.create_generic(session, text, files, **fields)
    output.echo(f"Created task {answer['taskId']}")
    output.say_notes(answer)
    if follow:
        show_task(session, answer["taskId"], Options(follow=True))


@task.command("config")
@_ID
@output.as_json
def show_config(task_id: str, as_json: bool) -> None:
    """Print the configuration of a task, with all defaults."""
    import json

    from dethpc.client.nouns import tasks

    session = connect()
    whole = json.loads(tasks.generic_config(session, tasks.named_of_any_kind(session, task_id)))
    output.print_config(whole, as_json)


@task.command()
@_ID
@click.option("--root", is_flag=True, help="End the whole tree of tasks that it belongs to.")
def kill(task_id: str, root: bool) -> None:
    """End a task, and those that belong to it."""
    from dethpc.client.nouns import tasks

    session = connect()
    full = tasks.named_of_any_kind(session, task_id)
    row = tasks.task(session, full)
    tasks.kill_generic(session, full, from_root=root)
    if row.get("endTime") and not root:
        output.echo(f"Task {full} has ended before: only what belongs to it can have been killed")
    else:
        output.echo(f"Killed task {full}")


@task.command()
@_ID
def pause(task_id: str) -> None:
    """End the job of a generic task; it begins anew when it is unpaused."""
    from dethpc.client.nouns import tasks

    session = connect()
    full = tasks.named_of_any_kind(session, task_id)
    tasks.pause(session, full)
    output.echo(f"Paused task {full}")


@task.command()
@_ID
def unpause(task_id: str) -> None:
    """Let a paused task begin anew."""
    from dethpc.client.nouns import tasks

    session = connect()
    full = tasks.named_of_any_kind(session, task_id)
    tasks.unpause(session, full)
    output.echo(f"Unpaused task {full}")


@task.command("cleanup-logs")
def cleanup_logs() -> None:
    """Delete now the logs of trials that are due, as the master does each hour."""
    from dethpc.client.nouns import experiments

    count = experiments.cleanup_logs(connect())
    output.echo(f"Deleted the logs of {output.plural(count, 'trial')}")
