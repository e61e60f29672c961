"""``det user``."""

from __future__ import annotations

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup


@click.group(cls=LazyGroup)
def user() -> None:
    """Who you are to the master."""


@user.command()
@output.as_json
def whoami(as_json: bool) -> None:
    """Print the user that the master takes you for."""
    from dethpc.client import cluster

    me = cluster.me(connect())
    if as_json:
        output.print_json(me)
    else:
        click.echo(f"You are logged in as user {me['username']!r}")
