"""``det rbac``: the roles of users and groups."""

from __future__ import annotations

from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

_ROLE = click.argument("role_name", metavar="ROLE")
_AS_OWNER = "Jobs run as the user who started the master, whoever creates the experiment."


@click.group(cls=LazyGroup)
def rbac() -> None:
    """Manage roles: what users of this master may do."""


@rbac.command("list-roles")
@listing
def list_roles(layout: tables.Layout) -> None:
    """List the roles, each of which may do all that those above it may."""
    from dethpc.client import roles

    _show_roles(roles.roles(connect()), layout)


@rbac.command("describe-role")
@_ROLE
@listing
def describe_role(role_name: str, layout: tables.Layout) -> None:
    """Show who has a role."""
    from dethpc.client import roles, users

    session = connect()
    row = roles.role(session, role_name)
    if layout.as_json:
        output.print_json(row)
        return
    usernames = {user["id"]: user["username"] for user in users.users(session)}
    names = {group["groupId"]: group["name"] for group in roles.groups(session)}
    rows = [{"kind": "user", "name": usernames.get(one["userId"])} for one in row["userRoleAssignments"]]
    rows += [{"kind": "group", "name": names.get(one["groupId"])} for one in row["groupRoleAssignments"]]
    tables.show(tables.Table([tables.Column("Kind", "kind"), tables.Column("Name", "name", least=12)], rows), layout)


@rbac.command("my-permissions")
@listing
def my_permissions(layout: tables.Layout) -> None:
    """List what you may do here."""
    from dethpc.client import roles

    rows = {one["id"]: one for row in roles.permissions(connect())["roles"] for one in row["permissions"]}
    if layout.as_json:
        output.print_json(list(rows.values()))
    else:
        tables.show(tables.Table([tables.Column("Permission", "name", least=12)], list(rows.values())), layout)


@rbac.command("list-users-roles")
@click.argument("username")
@listing
def list_users_roles(username: str, layout: tables.Layout) -> None:
    """List the roles of a user, their groups' included."""
    from dethpc.client import roles, users

    session = connect()
    _show_roles([row["role"] for row in roles.of_user(session, users.by_name(session, username)["id"])], layout)


@rbac.command("list-groups-roles")
@click.argument("group_name")
@listing
def list_groups_roles(group_name: str, layout: tables.Layout) -> None:
    """List the roles of a group."""
    from dethpc.client import roles

    session = connect()
    _show_roles(roles.of_group(session, roles.group(session, group_name)["groupId"]), layout)


def _show_roles(rows: list[dict[str, Any]], layout: tables.Layout) -> None:
    if layout.as_json:
        output.print_json(rows)
        return
    for row in rows:
        row["count"] = len(row["permissions"])
    columns = [
        tables.Column("ID", "roleId", tables.COUNT),
        tables.Column("Role", "name"),
        tables.Column("Permissions", "count", tables.COUNT),
    ]
    tables.show(tables.Table(columns, rows), layout)


_TO_USER = click.option("-u", "--username-to-assign", metavar="NAME", help="The user.")
_TO_GROUP = click.option("-g", "--group-name-to-assign", metavar="NAME", help="The group, for each of its members.")


@rbac.command("assign-role")
@_ROLE
@_TO_USER
@_TO_GROUP
def assign_role(role_name: str, username_to_assign: Optional[str], group_name_to_assign: Optional[str]) -> None:
    """Give a role to a user or to a group: Viewer, Editor or ClusterAdmin.

    Jobs run as the user who started the master, so an editor can run any program as that user.
    """
    from dethpc.client import roles

    session = connect()
    roles.assign(session, role_name, **_whom(session, username_to_assign, group_name_to_assign))
    output.echo(f"Assigned role {role_name} to {_name(username_to_assign, group_name_to_assign)}")
    if role_name.lower() != "viewer":
        output.say(f"{_AS_OWNER} An editor can run any program as that user.")


@rbac.command("unassign-role")
@_ROLE
@_TO_USER
@_TO_GROUP
def unassign_role(role_name: str, username_to_assign: Optional[str], group_name_to_assign: Optional[str]) -> None:
    """Take a role from a user or from a group."""
    from dethpc.client import roles

    session = connect()
    roles.unassign(session, role_name, **_whom(session, username_to_assign, group_name_to_assign))
    output.echo(f"Removed role {role_name} from {_name(username_to_assign, group_name_to_assign)}")


def _whom(session: Any, username: Optional[str], group_name: Optional[str]) -> dict[str, int]:
    """Raises UsageError, NotFound."""
    from dethpc.client import roles, users

    if (username is None) == (group_name is None):
        raise click.UsageError("Name a user (--username-to-assign) or a group (--group-name-to-assign).")
    if username is not None:
        return {"user_id": users.by_name(session, username)["id"]}
    return {"group_id": roles.group(session, str(group_name))["groupId"]}


def _name(username: Optional[str], group_name: Optional[str]) -> str:
    return f"group {group_name!r}" if username is None else f"user {username!r}"
