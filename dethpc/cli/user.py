"""``det user``."""

from __future__ import annotations

from typing import Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect
from dethpc.cli.group import Failed, LazyGroup


@click.group(cls=LazyGroup)
def user() -> None:
    """Show who you are to the master, and who else may log in."""


@user.command("list")
@click.option("-a", "--all", "inactive", is_flag=True, help="Inactive users, too.")
@listing
def list_users(inactive: bool, layout: tables.Layout) -> None:
    """List the users."""
    from dethpc.client import users

    rows = [one for one in users.users(connect()) if inactive or one["active"]]
    if layout.as_json:
        output.print_json(rows)
        return
    tables.show(tables.Table(_COLUMNS, rows), layout)


_COLUMNS = [
    tables.Column("ID", "id", tables.COUNT),
    tables.Column("Username", "username"),
    tables.Column("Display name", "displayName", rank=1, least=12),
    tables.Column("Active", "active"),
    tables.Column("Admin", "admin"),
]


@user.command()
@output.as_json
def whoami(as_json: bool) -> None:
    """Print the name by which the master knows you."""
    from dethpc.client import users

    me = users.me(connect())
    if as_json:
        output.print_json(me)
    else:
        output.echo(f"You are logged in as user {me['username']!r}")


@user.command("change-password")
@click.argument("username", required=False)
def change_password(username: Optional[str]) -> None:
    """Set your password, or that of USERNAME. Clients that cannot read your token file log in with it. Every login and access token
    ends."""
    from dethpc.client import users

    session = connect()
    user = users.by_name(session, username) if username else users.me(session)
    password = click.prompt(f"New password for user {user['username']!r}", hide_input=True, confirmation_prompt=True)
    users.change(session, user["id"], password=password)
    output.echo("Password changed; every login and access token has ended")


@user.command()
@click.option("-a", "--all", "everywhere", is_flag=True, help="Every login and access token, wherever it is used.")
def logout(everywhere: bool) -> None:
    """End the login or access token that you use, or all of them. Your token file stays good."""
    from dethpc.client import users
    from dethpc.client.address import token
    from dethpc.client.proof import OwnerToken

    session = connect()
    if not everywhere and isinstance(token(session.url), OwnerToken):
        raise Failed(
            ["you use your token file, so there is no login to end; det user logout --all ends all other logins"]
        )
    users.logout(session, everywhere=everywhere)
    output.echo("Every login and access token has ended" if everywhere else "Logged out")


@user.command()
@click.argument("username")
@click.option("--display-name", metavar="NAME", required=True, help="The name that pages and lists show.")
def edit(username: str, display_name: str) -> None:
    """Change a user's details."""
    from dethpc.client import users

    session = connect()
    users.change(session, users.by_name(session, username)["id"], displayName=display_name)
    output.echo(f"Changed user {username!r}")
