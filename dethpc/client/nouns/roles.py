"""Roles and groups of users, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, FrozenSet, List, Optional, Sequence

from dethpc.client import names
from dethpc.client.session import Json, Session


def permissions(session: Session) -> Json:
    """``roles`` that the user of ``session`` has, with their ``permissions``."""
    summary: Json = session.get("/api/v1/permissions/summary")
    return summary


def workspaces_with(session: Session, permission: str) -> Optional[FrozenSet[int]]:
    """Ids of those in which the user of ``session`` has it; None: all. ``permission``: as Determined calls it, such as
    CREATE_EXPERIMENT."""
    summary = permissions(session)
    id = f"PERMISSION_TYPE_{permission}"
    having = {row["roleId"] for row in summary["roles"] if any(one["id"] == id for one in row["permissions"])}
    scopes = [one for one in summary["assignments"] if one["roleId"] in having]
    if any(one["scopeCluster"] for one in scopes):
        return None
    return frozenset(workspace for one in scopes for workspace in one["scopeWorkspaceIds"])


def roles(session: Session) -> List[Json]:
    rows: List[Json] = session.post("/api/v1/roles/search", {}, idempotent=True)["roles"]
    return rows


def role(session: Session, name: str) -> Json:
    """``role``, and who has it: ``userRoleAssignments``, ``groupRoleAssignments``. Raises NotFound, with names like it."""
    body = {"roleIds": [_role_id(session, name)]}
    (row,) = session.post("/api/v1/roles/search/by-ids", body, idempotent=True)["roles"]
    assert isinstance(row, dict)
    return row


def _role_id(session: Session, name: str) -> int:
    """Upper and lower case are one. Raises NotFound, with names like it."""
    rows = roles(session)
    exact = next((row["name"] for row in rows if row["name"].lower() == name.lower()), name)
    return int(names.find("role", exact, rows, id="roleId", command="det rbac list-roles")["roleId"])


def of_user(session: Session, user_id: int) -> List[Json]:
    """Each with ``userRoleAssignments`` and ``groupRoleAssignments``."""
    rows: List[Json] = session.get(f"/api/v1/roles/search/by-user/{user_id}")["roles"]
    return rows


def of_group(session: Session, group_id: int) -> List[Json]:
    """Each with ``scopeCluster`` and ``scopeWorkspaceIds``: where it holds."""
    summary: Json = session.get(f"/api/v1/roles/search/by-group/{group_id}")
    scopes = {one["roleId"]: one for one in summary["assignments"]}
    return [{**row, **scopes[row["roleId"]]} for row in summary["roles"]]


def of_workspace(session: Session, workspace_id: int) -> List[Json]:
    """Who may see or change it: ``kind`` (user or group), ``name``, ``role`` and ``scopeWorkspaceId``, None: of all. Raises
    NotFound."""
    answer: Json = session.get(f"/api/v1/roles/workspace/{workspace_id}")
    users = {user["id"]: user["username"] for user in answer["usersAssignedDirectly"]}
    group_names = {row["groupId"]: row["name"] for row in answer["groups"]}
    return [
        {"kind": kind, "name": own[one[id]], "role": row["role"]["name"], **_scope(one)}
        for row in answer["assignments"]
        for kind, id, own in (("user", "userId", users), ("group", "groupId", group_names))
        for one in row[f"{kind}RoleAssignments"]
        if one[id] in own
    ]


def _scope(assignment: Json) -> Json:
    return {"scopeWorkspaceId": assignment["roleAssignment"]["scopeWorkspaceId"]}


def assign(session: Session, name: str, *, user_id: int = 0, group_id: int = 0, workspace_id: int = 0) -> None:
    """In this workspace alone; 0: in all. Raises NotFound, Refused."""
    session.post("/api/v1/roles/add-assignments", _assignment(session, name, user_id, group_id, workspace_id))


def unassign(session: Session, name: str, *, user_id: int = 0, group_id: int = 0, workspace_id: int = 0) -> None:
    """Raises NotFound."""
    session.post("/api/v1/roles/remove-assignments", _assignment(session, name, user_id, group_id, workspace_id))


def _assignment(session: Session, name: str, user_id: int, group_id: int, workspace_id: int) -> Json:
    scope: Json = {"scopeWorkspaceId": workspace_id} if workspace_id else {"scopeCluster": True}
    assignment = {"role": {"roleId": _role_id(session, name)}, **scope}
    if group_id:
        return {"groupRoleAssignments": [{"groupId": group_id, "roleAssignment": assignment}]}
    return {"userRoleAssignments": [{"userId": user_id, "roleAssignment": assignment}]}


def groups(session: Session, *, name: str = "", user_id: int = 0) -> List[Json]:
    """``groupId``, ``name`` and ``numMembers`` of each."""
    body = {"name": name, "userId": user_id}
    rows: List[Json] = session.post("/api/v1/groups/search", body, idempotent=True)["groups"]
    return [{**row["group"], "numMembers": row["numMembers"]} for row in rows]


def group(session: Session, name: str) -> Json:
    """The one of this name or id, with its ``users``. Raises NotFound, with names like it."""
    row = names.find("group", name, groups(session), id="groupId", command="det user-group list")
    details: Json = session.get(f"/api/v1/groups/{row['groupId']}")["group"]
    return details


def create_group(session: Session, name: str, user_ids: Sequence[int] = ()) -> Json:
    """Raises AlreadyExists, NotFound."""
    row: Json = session.post("/api/v1/groups", {"name": name, "addUsers": list(user_ids)})["group"]
    return row


def change_group(session: Session, group_id: int, **changes: Any) -> Json:
    """``name``, ``addUsers``, ``removeUsers``."""
    row: Json = session.put(f"/api/v1/groups/{group_id}", changes)["group"]
    return row


def delete_group(session: Session, group_id: int) -> None:
    session.delete(f"/api/v1/groups/{group_id}")
