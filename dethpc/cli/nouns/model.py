"""``det model``: the model registry."""

from __future__ import annotations

import json
import sys
from typing import Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import YES, listing, whole_uuid
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.output import Json

_NAME = click.argument("name")
_COLUMNS = [
    tables.Column("ID", "id", tables.COUNT),
    tables.Column("Name", "name", least=12),
    tables.Column("Versions", "numVersions", tables.COUNT),
    tables.Column("Description", "description", rank=2, least=12),
    tables.Column("Labels", lambda row: ", ".join(row["labels"]) or None, rank=2),
    tables.Column("Updated", "lastUpdatedTime", tables.AGE),
    tables.Column("Created", "creationTime", tables.AGE, rank=1),
    tables.Column("Workspace ID", "workspaceId", tables.COUNT, rank=1),
    tables.Column("Archived", "archived", rank=2),
]
_VERSIONS = [
    tables.Column("Version", "version", tables.COUNT),
    tables.Column("Name", "name"),
    tables.Column("Trial", lambda row: row["checkpoint"]["training"]["trialId"], tables.COUNT),
    tables.Column("Steps", lambda row: row["checkpoint"]["metadata"]["steps_completed"], tables.COUNT),
    tables.Column("Checkpoint", lambda row: row["checkpoint"]["uuid"]),
    tables.Column("Metric", lambda row: row["checkpoint"]["training"]["searcherMetric"], tables.METRIC),
    tables.Column("Created", "creationTime", tables.AGE, rank=1),
    tables.Column("Comment", "comment", rank=2, least=12),
]


@click.group(cls=LazyGroup, aliases={"ls": "list"}, invoke_without_command=True)
@click.pass_context
def model(ctx: click.Context) -> None:
    """Register checkpoints as versions of models, which keeps their files. Without a command: list models."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_models)


@model.command("list")
@click.option("-w", "--workspace-names", metavar="NAMES", help="Only of these workspaces, separated by commas.")
@click.option(
    "--sort-by",
    type=click.Choice(["name", "description", "creation_time", "last_updated_time"]),
    default="last_updated_time",
    help="What to sort by. Default: last_updated_time.",
)
@click.option("--order-by", type=click.Choice(["asc", "desc"]), default="asc", help="In which order. Default: asc.")
@listing
def list_models(workspace_names: Optional[str], sort_by: str, order_by: str, layout: tables.Layout) -> None:
    """List models."""
    from dethpc.client.nouns import models

    params: Json = {"sortBy": f"SORT_BY_{sort_by.upper()}", "orderBy": f"ORDER_BY_{order_by.upper()}"}
    if workspace_names:
        params["workspaceNames"] = workspace_names.split(",")
    rows = models.models(connect(), **params)
    tables.show(tables.Table(_COLUMNS, rows), layout)


@model.command()
@_NAME
@click.option("-w", "--workspace-name", metavar="NAME", help="The workspace. Default: Uncategorized.")
@click.option("--description", metavar="TEXT", default="", help="What it is for.")
@output.as_json
def create(name: str, workspace_name: Optional[str], description: str, as_json: bool) -> None:
    """Create a model."""
    from dethpc.client.nouns import models

    row = models.create(connect(), name, description=description, workspaceName=workspace_name)
    output.reply(row, f"Created model {row['id']} ({row['name']})", as_json)
    if not as_json:
        output.say(f"next: det model register-version '{row['name']}' UUID registers a checkpoint")


@model.command()
@_NAME
@click.option("--version", type=int, default=-1, metavar="N", help="Show this version. Default: the newest.")
@output.as_json
def describe(name: str, version: int, as_json: bool) -> None:
    """Show a model and one of its versions."""
    from dethpc.client.nouns import models

    session = connect()
    row = models.model(session, name)
    if as_json:
        output.print_json(row)
        return
    _show(row)
    rows = models.versions(session, name, limit=1) if version == -1 else [models.version(session, name, version)]
    if rows:
        output.echo("")
        tables.show(tables.Table(_VERSIONS, rows))


@model.command("list-versions")
@_NAME
@listing
def list_versions(name: str, layout: tables.Layout) -> None:
    """List the versions of a model, the newest first."""
    from dethpc.client.nouns import models

    rows = models.versions(connect(), name)
    tables.show(tables.Table(_VERSIONS, rows), layout)


@model.command("register-version")
@_NAME
@click.argument("uuid", type=whole_uuid)
@output.as_json
def register_version(name: str, uuid: str, as_json: bool) -> None:
    """Register a checkpoint as the next version of a model. Its files stay for as long as it is registered."""
    from dethpc.client.nouns import models

    row = models.register(connect(), name, uuid)
    output.reply(row, f"Registered version {row['version']} of model {name}", as_json)


@model.command()
@_NAME
@click.option("--name", "new_name", metavar="NAME", help="Its new name.")
@click.option("--description", metavar="TEXT", help="What it is for.")
@click.option("--notes", metavar="TEXT", help="Notes, in the place of those that it has.")
@click.option("--label", "labels", multiple=True, metavar="TEXT", help="Its labels, in the place of those that it has.")
@output.as_json
def edit(
    name: str,
    new_name: Optional[str],
    description: Optional[str],
    notes: Optional[str],
    labels: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change a model."""
    from dethpc.client.nouns import models

    fields = {"name": new_name, "description": description, "notes": notes, "labels": list(labels) or None}
    given = {field: value for field, value in fields.items() if value is not None}
    row = models.change(connect(), name, **given)
    if as_json:
        output.print_json(row)
    else:
        _show(row)


@model.command()
@_NAME
@click.option("-w", "--workspace-name", metavar="NAME", required=True, help="The workspace.")
def move(name: str, workspace_name: str) -> None:
    """Move a model to another workspace."""
    from dethpc.client.nouns import models

    models.change(connect(), name, workspaceName=workspace_name)
    output.echo(f"Moved model {name} to workspace {workspace_name}")


@model.command()
@_NAME
def archive(name: str) -> None:
    """Let it take no more versions."""
    from dethpc.client.nouns import models

    models.act(connect(), name, "archive")
    output.echo(f"Archived model {name}")


@model.command()
@_NAME
def unarchive(name: str) -> None:
    """Let it take versions again."""
    from dethpc.client.nouns import models

    models.act(connect(), name, "unarchive")
    output.echo(f"Unarchived model {name}")


@model.command()
@_NAME
@click.option("--version", type=int, metavar="N", help="Delete this version alone.")
@YES
def delete(name: str, version: Optional[int], yes: bool) -> None:
    """Delete a model with its versions. Their checkpoints stay until they are deleted themselves."""
    from dethpc.client.nouns import models

    session = connect()
    what = f"model {name}" if version is None else f"version {version} of model {name}"
    if not yes and sys.stdin.isatty():  # Determined's command does not ask, and scripts use it
        click.confirm(f"Delete {what}?", abort=True)
    if version is None:
        models.delete(session, name)
    else:
        models.delete_version(session, name, version)
    output.echo(f"Deleted {what}")


def _show(row: Json) -> None:
    output.print_fields(
        [
            ("ID", row["id"]),
            ("Name", row["name"]),
            ("Description", row["description"]),
            ("Labels", ", ".join(row["labels"])),
            ("Versions", str(row["numVersions"])),
            ("Owner", row["username"]),
            ("Workspace ID", row["workspaceId"]),
            ("Metadata", json.dumps(row["metadata"]) if row["metadata"] else ""),
            ("Notes", row["notes"]),
            ("Archived", "yes" if row["archived"] else ""),
        ]
    )
