"""``det config``: commands on a configuration file that need no master."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dethpc.cli import output
from dethpc.cli.group import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={"explain": ("dethpc.cli.commands.explain:explain", "Explain a field of a configuration.")},
)
def config() -> None:
    """Work with configuration files."""


@config.command()
@click.argument("file", metavar="FILE", type=click.File(encoding="utf-8"))
@click.option("-i", "--in-place", is_flag=True, help="Rewrite FILE instead of printing to standard output.")
def upgrade(file: Any, in_place: bool) -> None:
    """Rewrite an older experiment configuration in today's form.

    Fields that count steps, and lengths that are times today, are replaced. Everything else stays as it is, including comments.
    Standard error lists the replacements.
    """
    from dethpc.cli.commands.create import read_config
    from dethpc.config.upgrade import upgrade as upgraded

    if in_place and file.name in ("-", "<stdin>"):
        raise click.UsageError("--in-place needs the name of a file.")
    new, changes = upgraded(read_config(file), file.name)
    for change in changes:
        output.say(f"det: {change}")
    if not in_place:
        output.echo(new, nl=False)
    elif changes:
        _replace(Path(file.name), new, file.newlines if isinstance(file.newlines, str) else "\n")
    else:
        output.say(f"det: {file.name} is already in today's form")


def _replace(path: Path, text: str, newline: str) -> None:
    """A reader sees meanwhile the old file or the new one. A link keeps pointing to it, and its mode stays."""
    from dethpc.rundir.files import replacement

    path = path.resolve()
    with replacement(path) as file:
        os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
        file.write(text.replace("\n", newline).encode())
