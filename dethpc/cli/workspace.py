"""``det workspace``: groups of projects, with defaults for their experiments."""

from __future__ import annotations

import json
from typing import IO, Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.project import PROJECTS

Json = dict[str, Any]

_NAME = click.argument("workspace_name", metavar="WORKSPACE")
_COLUMNS = [
    tables.Column("ID", "id", tables.COUNT),
    tables.Column("Name", "name", least=12),
    tables.Column("Projects", "numProjects", tables.COUNT),
    tables.Column("Experiments", "numExperiments", tables.COUNT),
    tables.Column("Owner", "username", rank=2),
    tables.Column("Pool", "defaultComputePool", rank=1),
    tables.Column("Aux pool", "defaultAuxPool", rank=1),
    tables.Column("Archived", "archived", rank=2),
]


@click.group(cls=LazyGroup, aliases={"ls": "list"})
def workspace() -> None:
    """Group projects. An experiment names its place by workspace and project in its configuration."""


@workspace.command("list")
@listing
def list_workspaces(layout: tables.Layout) -> None:
    """List workspaces."""
    from dethpc.client import workspaces

    rows = workspaces.workspaces(connect())
    if layout.as_json:
        output.print_json(rows)
    else:
        tables.show(tables.Table(_COLUMNS, rows), layout)


@workspace.command("list-projects")
@_NAME
@listing
def list_projects(workspace_name: str, layout: tables.Layout) -> None:
    """List the projects of a workspace."""
    from dethpc.client import workspaces

    session = connect()
    rows = workspaces.projects(session, workspaces.workspace(session, workspace_name)["id"])
    if layout.as_json:
        output.print_json(rows)
    else:
        tables.show(tables.Table(PROJECTS, rows), layout)


@workspace.command("list-pools")
@_NAME
@output.as_json
def list_pools(workspace_name: str, as_json: bool) -> None:
    """List the resource pools that its experiments may use: all of them."""
    from dethpc.client import workspaces

    session = connect()
    names = workspaces.pools(session, workspaces.workspace(session, workspace_name)["id"])
    if as_json:
        output.print_json(names)
    else:
        output.echo("\n".join(names))


@workspace.command()
@_NAME
@output.as_json
def describe(workspace_name: str, as_json: bool) -> None:
    """Show a workspace."""
    from dethpc.client import workspaces

    _show(workspaces.workspace(connect(), workspace_name), as_json)


def _defaults(command: Any) -> Any:
    """Options of what a workspace gives to its experiments."""
    for option in (
        click.option("--default-aux-pool", metavar="POOL", help="Of experiments without slots that name no pool."),
        click.option("--default-compute-pool", metavar="POOL", help="Of experiments that name no pool."),
        click.option(
            "--checkpoint-storage-config-file", type=click.File(encoding="utf-8"), help="The same, from a file (YAML)."
        ),
        click.option(
            "--checkpoint-storage-config", metavar="JSON", help="checkpoint_storage of experiments that name none."
        ),
    ):
        command = option(command)
    return command


def _fields(
    storage: Optional[str], storage_file: Optional[IO[str]], pool: Optional[str], aux_pool: Optional[str]
) -> Json:
    if storage is not None and storage_file is not None:
        raise click.UsageError("give --checkpoint-storage-config or --checkpoint-storage-config-file, not both")
    section: Any = None
    if storage is not None:
        try:
            section = json.loads(storage)
        except ValueError as error:
            raise click.BadParameter(f"is not JSON: {error}", param_hint="--checkpoint-storage-config") from None
    elif storage_file is not None:
        import yaml

        try:
            section = yaml.safe_load(storage_file)
        except yaml.YAMLError as error:
            raise click.BadParameter(f"is not YAML: {error}", param_hint="--checkpoint-storage-config-file") from None
    fields = {"checkpointStorageConfig": section, "defaultComputePool": pool, "defaultAuxPool": aux_pool}
    return {name: value for name, value in fields.items() if value is not None}


@workspace.command()
@click.argument("name")
@_defaults
@output.as_json
def create(
    name: str,
    checkpoint_storage_config: Optional[str],
    checkpoint_storage_config_file: Optional[IO[str]],
    default_compute_pool: Optional[str],
    default_aux_pool: Optional[str],
    as_json: bool,
) -> None:
    """Create a workspace."""
    from dethpc.client import workspaces

    fields = _fields(checkpoint_storage_config, checkpoint_storage_config_file, default_compute_pool, default_aux_pool)
    row = workspaces.create_workspace(connect(), name, **fields)
    if as_json:
        output.print_json(row)
    else:
        output.echo(f"Created workspace {row['id']} ({row['name']})")


@workspace.command()
@_NAME
@click.option("--name", metavar="NAME", help="Its new name.")
@_defaults
@output.as_json
def edit(
    workspace_name: str,
    name: Optional[str],
    checkpoint_storage_config: Optional[str],
    checkpoint_storage_config_file: Optional[IO[str]],
    default_compute_pool: Optional[str],
    default_aux_pool: Optional[str],
    as_json: bool,
) -> None:
    """Change a workspace. An empty POOL or {} takes a default back."""
    from dethpc.client import workspaces

    fields = _fields(checkpoint_storage_config, checkpoint_storage_config_file, default_compute_pool, default_aux_pool)
    if name is not None:
        fields["name"] = name
    session = connect()
    row = workspaces.change_workspace(session, workspaces.workspace(session, workspace_name)["id"], **fields)
    _show(row, as_json)


def _act(workspace_name: str, action: str, done: str) -> None:
    from dethpc.client import workspaces

    session = connect()
    workspaces.act_on_workspace(session, workspaces.workspace(session, workspace_name)["id"], action)
    output.echo(f"{done} workspace {workspace_name}")


@workspace.command()
@_NAME
def archive(workspace_name: str) -> None:
    """Let its projects take no more experiments."""
    _act(workspace_name, "archive", "Archived")


@workspace.command()
@_NAME
def unarchive(workspace_name: str) -> None:
    """Let its projects take experiments again."""
    _act(workspace_name, "unarchive", "Unarchived")


@workspace.command()
@_NAME
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(workspace_name: str, yes: bool) -> None:
    """Delete a workspace that has no projects."""
    from dethpc.client import workspaces

    session = connect()
    row = workspaces.workspace(session, workspace_name)
    if not yes:
        click.confirm(f"Delete workspace {workspace_name}?", abort=True)
    workspaces.delete_workspace(session, row["id"])
    output.echo(f"Deleted workspace {workspace_name}")


def _show(row: Json, as_json: bool) -> None:
    if as_json:
        output.print_json(row)
        return
    storage = row.get("checkpointStorageConfig")
    output.print_fields(
        [
            ("ID", row["id"]),
            ("Name", row["name"]),
            ("Owner", row["username"]),
            ("Projects", str(row["numProjects"])),
            ("Experiments", str(row["numExperiments"])),
            ("Default pool", row["defaultComputePool"]),
            ("Default pool without slots", row["defaultAuxPool"]),
            ("Checkpoint storage", json.dumps(storage) if storage else ""),
            ("Archived", "yes" if row["archived"] else ""),
        ]
    )
