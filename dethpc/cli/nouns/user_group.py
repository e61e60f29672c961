"""``det user-group``: sets of users that have roles together."""

from __future__ import annotations

from typing import Optional, Tuple

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import YES, confirm, listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

_NAME = click.argument("group_name")
_USERS = click.argument("usernames", metavar="USERNAME[,USERNAME...]")


@click.group("user-group", cls=LazyGroup, aliases={"ls": "list"})
def user_group() -> None:
    """Manage groups of users, which have roles together (det rbac assign-role)."""


@user_group.command("list")
@click.option("--groups-user-belongs-to", "username", metavar="NAME", help="Only those of this user.")
@listing
def list_groups(username: Optional[str], layout: tables.Layout) -> None:
    """List groups."""
    from dethpc.client.nouns import roles, users

    session = connect()
    rows = roles.groups(session, user_id=users.by_name(session, username)["id"] if username else 0)
    columns = [
        tables.Column("ID", "groupId", tables.COUNT),
        tables.Column("Name", "name", least=12),
        tables.Column("Members", "numMembers", tables.COUNT),
    ]
    tables.show(tables.Table(columns, rows), layout)


@user_group.command()
@_NAME
@listing
def describe(group_name: str, layout: tables.Layout) -> None:
    """List the members of a group."""
    from dethpc.cli.nouns.user import COLUMNS
    from dethpc.client.nouns import roles

    row = roles.group(connect(), group_name)
    tables.show(tables.Table(COLUMNS, row["users"]), layout, row)


@user_group.command()
@_NAME
@click.option("--add-user", "usernames", metavar="NAME", multiple=True, help="A first member (repeatable).")
def create(group_name: str, usernames: tuple[str, ...]) -> None:
    """Create a group."""
    from dethpc.client.nouns import roles, users

    session = connect()
    row = roles.create_group(session, group_name, [users.by_name(session, name)["id"] for name in usernames])
    output.echo(f"Created group {row['name']!r} with ID {row['groupId']}")


@user_group.command()
@_NAME
@YES
def delete(group_name: str, yes: bool) -> None:
    """Delete a group. Its members lose the roles that they have by it."""
    from dethpc.client.nouns import roles

    session = connect()
    row = roles.group(session, group_name)
    confirm(f"Delete group {row['name']!r}, which has {len(row['users'])} members?", yes)
    roles.delete_group(session, row["groupId"])
    output.echo(f"Deleted group {row['name']!r}")


@user_group.command("add-user")
@_NAME
@_USERS
def add_user(group_name: str, usernames: str) -> None:
    """Add users to a group."""
    output.echo("Added {} to group {!r}".format(*_change(group_name, usernames, "addUsers")))


@user_group.command("remove-user")
@_NAME
@_USERS
def remove_user(group_name: str, usernames: str) -> None:
    """Remove users from a group."""
    output.echo("Removed {} from group {!r}".format(*_change(group_name, usernames, "removeUsers")))


def _change(group_name: str, usernames: str, field: str) -> Tuple[str, str]:
    """Names of the users, and of the group."""
    from dethpc.client.nouns import roles, users

    session = connect()
    members = [users.by_name(session, name.strip()) for name in usernames.split(",")]
    group = roles.group(session, group_name)
    roles.change_group(session, group["groupId"], **{field: [user["id"] for user in members]})
    return ", ".join(user["username"] for user in members), group["name"]


@user_group.command("change-name")
@click.argument("old_group_name")
@click.argument("new_group_name")
def change_name(old_group_name: str, new_group_name: str) -> None:
    """Rename a group."""
    from dethpc.client.nouns import roles

    session = connect()
    group = roles.group(session, old_group_name)
    roles.change_group(session, group["groupId"], name=new_group_name)
    output.echo(f"Renamed group {group['name']!r} to {new_group_name!r}")
