"""``det template``: parts of configurations that experiments share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

_NAME = click.argument("template_name", metavar="NAME")
_FILE = click.argument("template_file", metavar="FILE", type=click.File(encoding="utf-8"))
_COLUMNS = [tables.Column("Name", "name", least=12), tables.Column("Workspace", "workspace")]
_DETAILS = [*_COLUMNS, tables.Column("Config", "config", least=12)]


@click.group(cls=LazyGroup, aliases={"ls": "list", "rm": "remove"})
def template() -> None:
    """Manage templates. det experiment create --template NAME lays a configuration over one."""


@template.command("list")
@click.option("-d", "--details", is_flag=True, help="Show their configurations.")
@output.as_yaml
@listing
def list_templates(details: bool, layout: tables.Layout) -> None:
    """List templates."""
    from dethpc.client.nouns import templates, workspaces

    session = connect()
    rows = templates.templates(session)
    if layout.as_json:
        output.print_json(rows)
        return
    names = {space["id"]: space["name"] for space in workspaces.workspaces(session)} if rows else {}
    for row in rows:
        row["workspace"] = names.get(row["workspaceId"], "")
        row["config"] = output.compact(row["config"])
    tables.show(tables.Table(_DETAILS if details else _COLUMNS, rows), layout)


@template.command()
@_NAME
@output.as_yaml
@output.as_json
def describe(template_name: str, as_json: bool) -> None:
    """Show the configuration of a template, as YAML."""
    from dethpc.client.nouns import templates
    from dethpc.config.source import dump

    row = templates.get(connect(), template_name)
    if as_json:
        output.print_json(row)
    else:
        output.echo(dump(row["config"]), nl=False)


@contextmanager
def _config_of(file: Any) -> Iterator[dict[str, Any]]:
    """What the file says. Mistakes that the master finds in it are told with their places in the file."""
    from dethpc.cli.commands.create import read_config
    from dethpc.config.source import read

    source, problems = read(read_config(file), file.name)
    if problems:
        raise errors.ConfigError(problems)
    try:
        yield source.data
    except errors.ConfigError as error:
        for problem in error.problems:
            source.placed(problem)
        raise


@template.command("set")
@_NAME
@_FILE
def set_template(template_name: str, template_file: Any) -> None:
    """Create a template from FILE (YAML; - reads standard input), or replace it."""
    from dethpc.client.nouns import templates

    with _config_of(template_file) as config:
        templates.put(connect(), template_name, config)
    output.echo(f"Set template {template_name}")


@template.command()
@_NAME
@_FILE
@click.option("-w", "--workspace-name", "--workspace", metavar="WORKSPACE", help="Of which workspace it is.")
@output.as_json
def create(template_name: str, template_file: Any, workspace_name: Optional[str], as_json: bool) -> None:
    """Create a template from FILE (YAML; - reads standard input)."""
    from dethpc.client.nouns import templates, workspaces

    session = connect()
    workspace_id = workspaces.workspace(session, workspace_name)["id"] if workspace_name else 0
    with _config_of(template_file) as config:
        row = templates.create(session, template_name, config, workspace_id)
    output.reply(row, f"Created template {template_name}", as_json)


@template.group("set-value", cls=LazyGroup)
def set_value() -> None:
    """Change what a template holds."""


@set_value.command("config")
@_NAME
@_FILE
def set_config(template_name: str, template_file: Any) -> None:
    """Replace the configuration of a template by FILE (YAML; - reads standard input)."""
    from dethpc.client.nouns import templates

    with _config_of(template_file) as config:
        templates.change(connect(), template_name, config)
    output.echo(f"Updated template {template_name}")


@template.command()
@_NAME
@click.argument("new_name")
def rename(template_name: str, new_name: str) -> None:
    """Give a template another name."""
    from dethpc.client.nouns import templates

    templates.rename(connect(), template_name, new_name)
    output.echo(f"Renamed template {template_name} to {new_name}")


@template.command()
@_NAME
def remove(template_name: str) -> None:
    """Remove a template. Experiments that were created with it stay as they are."""
    from dethpc.client.nouns import templates

    templates.remove(connect(), template_name)
    output.echo(f"Removed template {template_name}")
