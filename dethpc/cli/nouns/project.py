"""``det project``: groups of experiments."""

from __future__ import annotations

import functools
from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import YES, confirm, listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.output import Json
from dethpc.client.session import Session

PROJECTS = [
    tables.Column("ID", "id", tables.COUNT),
    tables.Column("Key", "key"),
    tables.Column("Name", "name", least=12),
    tables.Column("Description", "description", rank=2, least=12),
    tables.Column("Experiments", "numExperiments", tables.COUNT),
    tables.Column("Active", "numActiveExperiments", tables.COUNT),
    tables.Column("Last started", "lastExperimentStartedAt", tables.AGE, rank=1),
    tables.Column("Archived", "archived", rank=2),
]


def in_pages(command: Any) -> Any:
    """Options of a list that the master sorts and cuts; the command takes them as ``page``, as the wire has them."""

    @click.option("--sort-by", type=click.Choice(["id", "name"]), default="id", help="What to sort by. Default: id.")
    @click.option("--order-by", type=click.Choice(["asc", "desc"]), default="asc", help="In which order. Default: asc.")
    @click.option("--limit", type=click.IntRange(0), default=0, help="At most this many (0: no limit).")
    @click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many.")
    @functools.wraps(command)
    def paged(*args: Any, sort_by: str, order_by: str, limit: int, offset: int, **options: Any) -> Any:
        page = {"sortBy": f"SORT_BY_{sort_by.upper()}", "orderBy": f"ORDER_BY_{order_by.upper()}"}
        return command(*args, page={**page, "limit": limit or -1, "offset": offset}, **options)

    return paged


@click.group(cls=LazyGroup, aliases={"ls": "list"})
def project() -> None:
    """Group experiments. Each project is in a workspace."""


def _place(command: Any) -> Any:
    return click.argument("workspace_name", metavar="WORKSPACE")(
        click.argument("project_name", metavar="PROJECT")(command)
    )


_EVERYBODY = click.option("-a", "--all", "everybody", is_flag=True, help="Include everybody's and archived ones.")


@project.command("list")
@click.argument("workspace_name", metavar="WORKSPACE", required=False)
@in_pages
@listing
def list_projects(workspace_name: Optional[str], page: Json, layout: tables.Layout) -> None:
    """List projects; only those of WORKSPACE if you name one."""
    from dethpc.client.nouns import workspaces

    session = connect()
    id = workspaces.workspace(session, workspace_name)["id"] if workspace_name else 0
    rows = workspaces.projects(session, id, **page)
    columns = PROJECTS if workspace_name else [tables.Column("Workspace", "workspaceName"), *PROJECTS]
    tables.show(tables.Table(columns, rows), layout)


@project.command("list-experiments")
@_place
@_EVERYBODY
@in_pages
@listing
def list_experiments(
    workspace_name: str, project_name: str, everybody: bool, page: Json, layout: tables.Layout
) -> None:
    """List the experiments of a project."""
    from dethpc.cli.nouns.experiment import show_experiments
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.project(session, workspace_name, project_name)
    order = {"sort_by": page["sortBy"], "newest_first": page["orderBy"] == "ORDER_BY_DESC"}
    rows = _experiments(session, row["id"], everybody, limit=page["limit"], offset=page["offset"], **order)
    show_experiments(rows, layout, everybody=everybody)


def _experiments(session: Session, project_id: int, everybody: bool, **page: Any) -> list[Json]:
    from dethpc.client.nouns import experiments

    which = experiments.Filter(None if everybody else False, not everybody, project=project_id)
    return list(experiments.listing(session, which, **page)["experiments"])


@project.command()
@_place
@_EVERYBODY
@output.as_json
def describe(workspace_name: str, project_name: str, everybody: bool, as_json: bool) -> None:
    """Show a project and its experiments."""
    from dethpc.cli.nouns.experiment import show_experiments
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.project(session, workspace_name, project_name)
    _show(row, as_json)
    if not as_json and (rows := _experiments(session, row["id"], everybody)):
        output.echo("")
        show_experiments(rows, tables.Layout(), everybody=everybody)


@project.command()
@click.argument("workspace_name", metavar="WORKSPACE")
@click.argument("name")
@click.option("--description", metavar="TEXT", default="", help="What it is for.")
@click.option(
    "--key", metavar="KEY", default="", help="A short name, of up to 5 letters and digits. Default: one is made."
)
@output.as_json
def create(workspace_name: str, name: str, description: str, key: str, as_json: bool) -> None:
    """Create a project."""
    from dethpc.client.nouns import workspaces

    session = connect()
    id = workspaces.workspace(session, workspace_name)["id"]
    row = workspaces.create_project(session, id, name, description, key)
    output.reply(row, f"Created project {row['id']} ({row['name']}) in workspace {workspace_name}", as_json)


@project.command()
@_place
@click.option("--new_name", "--name", "name", metavar="NAME", help="Its new name.")
@click.option("--description", metavar="TEXT", help="What it is for.")
@click.option("--key", metavar="KEY", help="A short name, of up to 5 letters and digits.")
@output.as_json
def edit(
    workspace_name: str,
    project_name: str,
    name: Optional[str],
    description: Optional[str],
    key: Optional[str],
    as_json: bool,
) -> None:
    """Change a project."""
    from dethpc.client.nouns import workspaces

    fields = {"name": name, "description": description, "key": key}
    session = connect()
    row = workspaces.project(session, workspace_name, project_name)
    given = {field: value for field, value in fields.items() if value is not None}
    _show(workspaces.change_project(session, row["id"], **given), as_json)


@project.command()
@_place
@click.argument("destination", metavar="NEW_WORKSPACE")
def move(workspace_name: str, project_name: str, destination: str) -> None:
    """Move a project with its experiments to another workspace."""
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.project(session, workspace_name, project_name)
    new_workspace = workspaces.workspace(session, destination)
    workspaces.move_project(session, row["id"], new_workspace["id"])
    output.echo(f"Moved project {row['name']} to workspace {new_workspace['name']}")


def _act(workspace_name: str, project_name: str, action: str, done: str) -> None:
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.project(session, workspace_name, project_name)
    workspaces.act_on_project(session, row["id"], action)
    output.echo(f"{done} project {row['name']}")


@project.command()
@_place
def archive(workspace_name: str, project_name: str) -> None:
    """Let it take no more experiments."""
    _act(workspace_name, project_name, "archive", "Archived")


@project.command()
@_place
def unarchive(workspace_name: str, project_name: str) -> None:
    """Let it take experiments again."""
    _act(workspace_name, project_name, "unarchive", "Unarchived")


@project.command()
@_place
@YES
def delete(workspace_name: str, project_name: str, yes: bool) -> None:
    """Delete a project that has no experiments."""
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.project(session, workspace_name, project_name)
    confirm(f"Delete project {row['name']} and its notes?", yes)
    workspaces.delete_project(session, row["id"])
    output.echo(f"Deleted project {row['name']}")


def _show(row: Json, as_json: bool) -> None:
    if as_json:
        output.print_json(row)
        return
    output.print_fields(
        [
            ("ID", row["id"]),
            ("Key", row["key"]),
            ("Name", row["name"]),
            ("Workspace", row["workspaceName"]),
            ("Description", row["description"]),
            ("Owner", row["username"]),
            ("Experiments", f"{row['numExperiments']} ({row['numActiveExperiments']} active)"),
            ("Trials", str(row["numRuns"])),
            ("Archived", "yes" if row["archived"] else ""),
            *((f"Note {note['name']!r}", note["contents"]) for note in row["notes"]),
        ]
    )
