"""``det config-policies``: what an admin demands of every configuration."""

from __future__ import annotations

from typing import Any, Optional

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

_KINDS = {"experiment": "EXPERIMENT", "tasks": "NTSC", "ntsc": "NTSC"}
"""What the API calls them. It knows "tasks" by the initials of notebooks, TensorBoards, shells and commands."""

_KIND = click.argument("kind", metavar="KIND", type=click.Choice(list(_KINDS), case_sensitive=False))
_WORKSPACE = click.option(
    "-w", "--workspace-name", metavar="NAME", help="Those of this workspace. Default: those of the whole master."
)


@click.group("config-policies", cls=LazyGroup)
def config_policies() -> None:
    """Show and set what every configuration must be like.

    KIND is experiment, or tasks: notebooks, TensorBoards, shells, commands and generic tasks."""


def _of(session: Any, name: Optional[str]) -> int:
    from dethpc.client.nouns import workspaces

    return int(workspaces.workspace(session, name)["id"]) if name else 0


@config_policies.command()
@_KIND
@_WORKSPACE
@output.as_yaml
@output.as_json
def describe(kind: str, workspace_name: Optional[str], as_json: bool) -> None:
    """Show the policies, as YAML."""
    from dethpc.client.nouns import config_policies as client

    session = connect()
    _print(client.get(session, _of(session, workspace_name), _KINDS[kind]), as_json)


@config_policies.command("set")
@_KIND
@click.argument("config_file", metavar="FILE", type=click.File(encoding="utf-8"))
@_WORKSPACE
@output.as_yaml
@output.as_json
def set_policies(kind: str, config_file: Any, workspace_name: Optional[str], as_json: bool) -> None:
    """Set the policies to what FILE says: invariant_config lies over each configuration, and constraints bound it
    (resources.max_slots, priority_limit). They bind what is created, continued or moved from now on."""
    from dethpc.cli.commands.create import located, read_config
    from dethpc.client.nouns import config_policies as client
    from dethpc.config.source import read

    session, text = connect(), read_config(config_file)
    source, _ = read(text, config_file.name)
    with located(source):
        _print(client.put(session, text, _of(session, workspace_name), _KINDS[kind]), as_json)


@config_policies.command()
@_KIND
@_WORKSPACE
def delete(kind: str, workspace_name: Optional[str]) -> None:
    """Delete the policies."""
    from dethpc.client.nouns import config_policies as client

    session = connect()
    client.delete(session, _of(session, workspace_name), _KINDS[kind])
    place = f"workspace {workspace_name}" if workspace_name else "this master"
    subject = "experiments" if _KINDS[kind] == "EXPERIMENT" else "tasks"
    output.echo(f"Deleted the config policies for {subject} of {place}")


def _print(content: dict[str, Any], as_json: bool) -> None:
    from dethpc.config.source import dump

    if as_json:
        output.print_json(content)
    else:
        output.echo(dump(content) if content else "{}\n", nl=False)
