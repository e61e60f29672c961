"""``det workspace``: groups of projects, with defaults for their experiments."""

from __future__ import annotations

import functools
import json
from typing import IO, Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import YES, confirm, listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.nouns.project import PROJECTS, in_pages
from dethpc.cli.output import Json

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
@in_pages
@listing
def list_workspaces(page: Json, layout: tables.Layout) -> None:
    """List workspaces."""
    from dethpc.client.nouns import workspaces

    rows = workspaces.workspaces(connect(), **page)
    tables.show(tables.Table(_COLUMNS, rows), layout)


@workspace.command("list-projects")
@_NAME
@in_pages
@listing
def list_projects(workspace_name: str, page: Json, layout: tables.Layout) -> None:
    """List the projects of a workspace."""
    from dethpc.client.nouns import workspaces

    session = connect()
    rows = workspaces.projects(session, workspaces.workspace(session, workspace_name)["id"], **page)
    tables.show(tables.Table(PROJECTS, rows), layout)


@workspace.command("list-members")
@_NAME
@output.as_yaml
@listing
def list_members(workspace_name: str, layout: tables.Layout) -> None:
    """List who may see or change a workspace, by a role in it or in all of them."""
    from dethpc.client.nouns import roles, workspaces

    session = connect()
    rows = roles.of_workspace(session, workspaces.workspace(session, workspace_name)["id"])
    columns = [
        tables.Column("Kind", "kind"),
        tables.Column("Name", "name", least=12),
        tables.Column("Role", "role"),
        tables.Column("In", lambda row: "this workspace" if row["scopeWorkspaceId"] else "all workspaces"),
    ]
    tables.show(tables.Table(columns, rows), layout)


@workspace.command("list-pools")
@_NAME
@output.as_json
def list_pools(workspace_name: str, as_json: bool) -> None:
    """List the resource pools that its experiments may use: all of them."""
    from dethpc.client.nouns import workspaces

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
    from dethpc.client.nouns import workspaces

    _show(workspaces.workspace(connect(), workspace_name), as_json)


def _fields(command: Any) -> Any:
    """Options of what a workspace holds; the command takes them as ``fields``, as the wire has them."""

    @click.option(
        "--checkpoint-storage-config", metavar="JSON", help="checkpoint_storage of experiments that name none."
    )
    @click.option(
        "--checkpoint-storage-config-file", type=click.File(encoding="utf-8"), help="The same, from a file (YAML)."
    )
    @click.option("--default-compute-pool", metavar="POOL", help="Of experiments that name no pool.")
    @click.option("--default-aux-pool", metavar="POOL", help="Of experiments without slots that name no pool.")
    @click.option(
        "--agent-uid", type=int, metavar="ID", help="A Unix user's id. Stored; jobs run as the master's owner."
    )
    @click.option("--agent-user", metavar="NAME", help="A Unix user's name, likewise.")
    @click.option("--agent-gid", type=int, metavar="ID", help="A Unix group's id, likewise.")
    @click.option("--agent-group", metavar="NAME", help="A Unix group's name, likewise.")
    @functools.wraps(command)
    def with_fields(
        *args: Any,
        checkpoint_storage_config: Optional[str],
        checkpoint_storage_config_file: Optional[IO[str]],
        default_compute_pool: Optional[str],
        default_aux_pool: Optional[str],
        **options: Any,
    ) -> Any:
        agent = {f"agent{name.title()}": options.pop(f"agent_{name}") for name in ("uid", "user", "gid", "group")}
        agent = {name: value for name, value in agent.items() if value is not None}
        fields = {
            "checkpointStorageConfig": _storage(checkpoint_storage_config, checkpoint_storage_config_file),
            "defaultComputePool": default_compute_pool,
            "defaultAuxPool": default_aux_pool,
            "agentUserGroup": agent or None,
        }
        return command(*args, fields={name: value for name, value in fields.items() if value is not None}, **options)

    return with_fields


def _storage(text: Optional[str], file: Optional[IO[str]]) -> Any:
    """The section that the options give; None: neither is there. Raises click's errors."""
    if text is not None and file is not None:
        raise click.UsageError("give --checkpoint-storage-config or --checkpoint-storage-config-file, not both")
    if text is not None:
        try:
            return json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"is not JSON: {error}", param_hint="--checkpoint-storage-config") from None
    if file is None:
        return None
    import yaml

    try:
        return yaml.safe_load(file)
    except yaml.YAMLError as error:
        raise click.BadParameter(f"is not YAML: {error}", param_hint="--checkpoint-storage-config-file") from None


@workspace.command()
@click.argument("name")
@_fields
@output.as_json
def create(name: str, fields: Json, as_json: bool) -> None:
    """Create a workspace."""
    from dethpc.client.nouns import workspaces

    row = workspaces.create_workspace(connect(), name, **fields)
    output.reply(row, f"Created workspace {row['id']} ({row['name']})", as_json)


@workspace.command()
@_NAME
@click.option("--name", metavar="NAME", help="Its new name.")
@_fields
@output.as_json
def edit(workspace_name: str, name: Optional[str], fields: Json, as_json: bool) -> None:
    """Change a workspace. An empty POOL or {} takes a default back."""
    from dethpc.client.nouns import workspaces

    if name is not None:
        fields["name"] = name
    session = connect()
    row = workspaces.change_workspace(session, workspaces.workspace(session, workspace_name)["id"], **fields)
    _show(row, as_json)


def _act(workspace_name: str, action: str, done: str) -> None:
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.workspace(session, workspace_name)
    workspaces.act_on_workspace(session, row["id"], action)
    output.echo(f"{done} workspace {row['name']}")


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
@YES
def delete(workspace_name: str, yes: bool) -> None:
    """Delete a workspace that has no projects. Tasks that run in it are killed."""
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.workspace(session, workspace_name)
    confirm(f"Delete workspace {row['name']}?", yes)
    workspaces.delete_workspace(session, row["id"])
    output.echo(f"Deleted workspace {row['name']}")


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
