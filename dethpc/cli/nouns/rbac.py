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
    """List the roles, and how many permissions each has."""
    from dethpc.client.nouns import roles

    _show_roles(roles.roles(connect()), layout)


@rbac.command("describe-role")
@_ROLE
@listing
def describe_role(role_name: str, layout: tables.Layout) -> None:
    """Show who has a role."""
    from dethpc.client.nouns import roles, users

    session = connect()
    row = roles.role(session, role_name)
    if layout.as_json:
        output.print_json(row)
        return
    usernames = {user["id"]: user["username"] for user in users.users(session)}
    names = {group["groupId"]: group["name"] for group in roles.groups(session)}
    place_names = _names_of_workspaces(session)
    rows = [
        {
            "kind": kind,
            "name": own.get(one[id]),
            "workspaces": place_names[one["roleAssignment"]["scopeWorkspaceId"] or 0],
        }
        for kind, id, own in (("user", "userId", usernames), ("group", "groupId", names))
        for one in row[f"{kind}RoleAssignments"]
    ]
    columns = [tables.Column("Kind", "kind"), tables.Column("Name", "name", least=12), _WORKSPACES]
    tables.show(tables.Table(columns, rows), layout)


_WORKSPACES = tables.Column("Workspaces", "workspaces")


def _names_of_workspaces(session: Any) -> dict[int, str]:
    """0: of a role that holds in every one."""
    from dethpc.client.nouns import workspaces

    return {0: "all", **{row["id"]: row["name"] for row in workspaces.workspaces(session)}}


@rbac.command("my-permissions")
@listing
def my_permissions(layout: tables.Layout) -> None:
    """List what you may do here."""
    from dethpc.client.nouns import roles

    rows = {one["id"]: one for row in roles.permissions(connect())["roles"] for one in row["permissions"]}
    tables.show(tables.Table([tables.Column("Permission", "name", least=12)], list(rows.values())), layout)


@rbac.command("list-users-roles")
@click.argument("username")
@listing
def list_users_roles(username: str, layout: tables.Layout) -> None:
    """List the roles of a user, their groups' included."""
    from dethpc.client.nouns import roles, users

    session = connect()
    place_names = _names_of_workspaces(session)
    rows = []
    for row in roles.of_user(session, users.by_name(session, username)["id"]):
        assignments = [*row["userRoleAssignments"], *row["groupRoleAssignments"]]
        ids = {one["roleAssignment"]["scopeWorkspaceId"] or 0 for one in assignments}
        rows.append(
            {**row["role"], "workspaces": ", ".join(place_names[id] for id in sorted(ids) if id in place_names)}
        )
    _show_roles(rows, layout)


@rbac.command("list-groups-roles")
@click.argument("group_name")
@listing
def list_groups_roles(group_name: str, layout: tables.Layout) -> None:
    """List the roles of a group."""
    from dethpc.client.nouns import roles

    session = connect()
    place_names = _names_of_workspaces(session)
    rows = roles.of_group(session, roles.group(session, group_name)["groupId"])
    for row in rows:
        ids = [0] * row["scopeCluster"] + row["scopeWorkspaceIds"]
        row["workspaces"] = ", ".join(place_names[id] for id in ids if id in place_names)
    _show_roles(rows, layout)


def _show_roles(rows: list[dict[str, Any]], layout: tables.Layout) -> None:
    columns = [
        tables.Column("ID", "roleId", tables.COUNT),
        tables.Column("Role", "name"),
        tables.Column("Permissions", lambda row: len(row["permissions"]), tables.COUNT),
        *([_WORKSPACES] if any("workspaces" in row for row in rows) else []),
    ]
    tables.show(tables.Table(columns, rows), layout)


_TO_USER = click.option("-u", "--username-to-assign", metavar="NAME", help="The user.")
_TO_GROUP = click.option("-g", "--group-name-to-assign", metavar="NAME", help="The group, for each of its members.")


_IN_WORKSPACE = click.option(
    "-w", "--workspace-name", metavar="NAME", help="In this workspace alone. [default: in all]"
)


@rbac.command("assign-role")
@_ROLE
@_TO_USER
@_TO_GROUP
@_IN_WORKSPACE
def assign_role(
    role_name: str,
    username_to_assign: Optional[str],
    group_name_to_assign: Optional[str],
    workspace_name: Optional[str],
) -> None:
    """Give a role to a user or to a group: Viewer, Editor or ClusterAdmin; in one workspace alone Viewer, Editor or WorkspaceAdmin.

    Jobs run as the user who started the master, so an editor can run any program as that user.
    """
    from dethpc.client.nouns import roles

    session = connect()
    whom = _whom(session, username_to_assign, group_name_to_assign, workspace_name)
    roles.assign(session, role_name, **whom)
    output.echo(f"Assigned role {role_name} to {_name(username_to_assign, group_name_to_assign, workspace_name)}")
    if role_name.lower() != "viewer":
        output.say(f"{_AS_OWNER} An editor can run any program as that user.")


@rbac.command("unassign-role")
@_ROLE
@_TO_USER
@_TO_GROUP
@_IN_WORKSPACE
def unassign_role(
    role_name: str,
    username_to_assign: Optional[str],
    group_name_to_assign: Optional[str],
    workspace_name: Optional[str],
) -> None:
    """Take a role from a user or from a group."""
    from dethpc.client.nouns import roles

    session = connect()
    whom = _whom(session, username_to_assign, group_name_to_assign, workspace_name)
    roles.unassign(session, role_name, **whom)
    output.echo(f"Removed role {role_name} from {_name(username_to_assign, group_name_to_assign, workspace_name)}")


def _whom(
    session: Any, username: Optional[str], group_name: Optional[str], workspace_name: Optional[str]
) -> dict[str, int]:
    """Raises UsageError, NotFound."""
    from dethpc.client.nouns import roles, users, workspaces

    if (username is None) == (group_name is None):
        raise click.UsageError("Name a user (--username-to-assign) or a group (--group-name-to-assign).")
    workspace_id = 0 if workspace_name is None else workspaces.workspace(session, workspace_name)["id"]
    if username is not None:
        return {"user_id": users.by_name(session, username)["id"], "workspace_id": workspace_id}
    return {"group_id": roles.group(session, str(group_name))["groupId"], "workspace_id": workspace_id}


def _name(username: Optional[str], group_name: Optional[str], workspace_name: Optional[str]) -> str:
    whom = f"group {group_name!r}" if username is None else f"user {username!r}"
    return whom if workspace_name is None else f"{whom} in workspace {workspace_name!r}"
