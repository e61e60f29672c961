"""``det user``."""

from __future__ import annotations

from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import address, connect, named_master, named_user
from dethpc.cli.group import Failed, LazyGroup


@click.group(cls=LazyGroup)
def user() -> None:
    """Manage who may log in to the master. Jobs run as the user who started it, whoever creates the experiment."""


@user.command("list")
@click.option("-a", "--all", "inactive", is_flag=True, help="Inactive users, too.")
@listing
def list_users(inactive: bool, layout: tables.Layout) -> None:
    """List the users."""
    from dethpc.client.nouns import users

    rows = [one for one in users.users(connect()) if inactive or one["active"]]
    tables.show(tables.Table(COLUMNS, rows), layout)


COLUMNS = [
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
    from dethpc.client.nouns import users

    me = users.me(connect())
    output.reply(me, f"You are logged in as user {me['username']!r}", as_json)


@user.command()
@click.argument("username")
@click.option(
    "--admin", is_flag=True, help="May do all that you may. Without it, the user may look: see det rbac assign-role."
)
@click.option("--password", metavar="TEXT", help="At least 8 characters. Default: asked for on a terminal.")
@click.option("--display-name", metavar="NAME", default="", help="The name that pages and lists show.")
def create(username: str, admin: bool, password: Optional[str], display_name: str) -> None:
    """Create a user, who can look at everything: experiments, metrics, logs and code, without secrets."""
    import sys

    from dethpc.client.nouns import users

    session = connect()
    if password is None and sys.stdin.isatty():
        password = _new_password(username)
    row = users.create(session, username, password or "", admin=admin, display_name=display_name)
    output.echo(f"Created user {row['username']!r} with ID {row['id']}")
    if not password:
        output.say(f"{username} cannot log in yet: det user change-password {username}, or det token create {username}")


@user.command()
@click.argument("username", required=False)
def login(username: Optional[str]) -> None:
    """Log in to the master that -m or DET_MASTER names, with a user's password: USERNAME's, else that of -u or DET_USER. The
    password may come from DET_PASS. Your own master needs no login: your token file is enough."""
    import contextlib
    import getpass
    import os

    from dethpc.client import Session
    from dethpc.client.login import login as log_in
    from dethpc.client.login import remember

    url = address()
    with contextlib.closing(Session(url)) as session:
        session.identity()  # raises where no master answers, before a password is typed
    username = username or named_user() or getpass.getuser()
    password = os.environ.get("DET_PASS") if os.environ.get("DET_USER") in (None, "", username) else None
    password = password or output.password(f"Password of user {username!r}")
    remember(url, username, log_in(url, username, password))
    output.echo(f"Logged in to {url} as user {username!r}")
    if not named_master():
        output.say(
            f"note: this is your own master, which takes you for its owner; to act as that user: det -u {username} ..."
        )


def _new_password(username: str) -> str:
    return output.password(f"New password for user {username!r}", twice=True)


@user.command("change-password")
@click.argument("username", required=False)
def change_password(username: Optional[str]) -> None:
    """Set your password, or that of USERNAME. Clients that cannot read your token file log in with it. Every login and access token
    ends."""
    from dethpc.client.nouns import users

    session = connect()
    user = users.by_name(session, username) if username else users.me(session)
    users.change(session, user["id"], password=_new_password(user["username"]))
    output.echo("Password changed; every login and access token has ended")


@user.command()
@click.option("-a", "--all", "everywhere", is_flag=True, help="Every login and access token, wherever it is used.")
def logout(everywhere: bool) -> None:
    """End the login or access token that you use, or all of them. Your token file stays good."""
    from dethpc.client.nouns import users

    session = connect()
    if not everywhere and session.is_owners:
        raise Failed(
            ["you use your token file, so there is no login to end; det user logout --all ends all other logins"]
        )
    username = users.me(session)["username"]
    users.logout(session, everywhere=everywhere)
    output.echo(f"Every login and access token of {username} has ended" if everywhere else f"{username} is logged out")


@user.command()
@click.argument("username")
@click.option("--display-name", metavar="NAME", help="The name that pages and lists show.")
@click.option("--username", "new_name", metavar="NAME", help="The name to log in by.")
@click.option("--active", type=click.BOOL, metavar="true|false", help="Whether the user may log in.")
@click.option("--admin", type=click.BOOL, metavar="true|false", help="Whether the user may do all that you may.")
def edit(
    username: str,
    display_name: Optional[str],
    new_name: Optional[str],
    active: Optional[bool],
    admin: Optional[bool],
) -> None:
    """Change a user."""
    fields = {"displayName": display_name, "username": new_name, "active": active, "admin": admin}
    changes = {name: value for name, value in fields.items() if value is not None}
    if not changes:
        raise click.UsageError("Name what to change: --display-name, --username, --active or --admin.")
    output.echo(f"Changed user {_change(username, changes)!r}")


@user.command("link-with-agent-user")
@click.argument("username")
@click.option("--agent-uid", type=int, required=True, metavar="UID", help="Their number on the nodes.")
@click.option("--agent-user", required=True, metavar="NAME", help="Their name on the nodes.")
@click.option("--agent-gid", type=int, required=True, metavar="GID", help="The number of their group.")
@click.option("--agent-group", required=True, metavar="NAME", help="The name of their group.")
def link_with_agent_user(username: str, agent_uid: int, agent_user: str, agent_gid: int, agent_group: str) -> None:
    """Note which Unix user and group a user is. It is shown, and has no effect yet: jobs run as the owner of the master."""
    link = {"agentUid": agent_uid, "agentUser": agent_user, "agentGid": agent_gid, "agentGroup": agent_group}
    name = _change(username, {"agentUserGroup": link})
    output.echo(f"Linked user {name!r} with {agent_user}:{agent_group}. It has no effect yet: jobs run as the owner")


@user.command()
@click.argument("username")
def activate(username: str) -> None:
    """Let a user log in again."""
    output.echo(f"Activated user {_change(username, {'active': True})!r}")


@user.command()
@click.argument("username")
def deactivate(username: str) -> None:
    """Let a user log in no more. Their logins and access tokens end."""
    output.echo(f"Deactivated user {_change(username, {'active': False})!r}")


@user.command()
@click.argument("username")
@click.argument("new_name")
def rename(username: str, new_name: str) -> None:
    """Change the name that a user logs in by."""
    output.echo(f"Renamed user {_change(username, {'username': new_name})!r} to {new_name!r}")


def _change(username: str, changes: dict[str, Any]) -> str:
    """The name of the user who is changed, where an id was given, too. Raises NotFound, Refused."""
    from dethpc.client.nouns import users

    session = connect()
    row = users.by_name(session, username)
    users.change(session, row["id"], **changes)
    return str(row["username"])
