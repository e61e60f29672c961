"""Roles and groups of users, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from dethpc.client.session import Session
from dethpc.errors import NotFound

Json = Dict[str, Any]


def permissions(session: Session) -> Json:
    """``roles`` that the user of ``session`` has, with their ``permissions``."""
    summary: Json = session.get("/api/v1/permissions/summary")
    return summary


def roles(session: Session) -> List[Json]:
    rows: List[Json] = session.post("/api/v1/roles/search", {}, idempotent=True)["roles"]
    return rows


def role(session: Session, name: str) -> Json:
    """``role``, and who has it: ``userRoleAssignments``, ``groupRoleAssignments``. Raises NotFound, with the names of roles."""
    body = {"roleIds": [_role_id(session, name)]}
    (row,) = session.post("/api/v1/roles/search/by-ids", body, idempotent=True)["roles"]
    assert isinstance(row, dict)
    return row


def _role_id(session: Session, name: str) -> int:
    """Raises NotFound, with the names of roles."""
    rows = roles(session)
    for row in rows:
        if row["name"].lower() == name.lower():
            return int(row["roleId"])
    raise NotFound(f"there is no role {name!r}, only {', '.join(row['name'] for row in rows)}")


def of_user(session: Session, user_id: int) -> List[Json]:
    """Each with ``userRoleAssignments`` and ``groupRoleAssignments``."""
    rows: List[Json] = session.get(f"/api/v1/roles/search/by-user/{user_id}")["roles"]
    return rows


def of_group(session: Session, group_id: int) -> List[Json]:
    rows: List[Json] = session.get(f"/api/v1/roles/search/by-group/{group_id}")["roles"]
    return rows


def assign(session: Session, name: str, *, user_id: int = 0, group_id: int = 0) -> None:
    """Raises NotFound."""
    session.post("/api/v1/roles/add-assignments", _assignment(session, name, user_id, group_id))


def unassign(session: Session, name: str, *, user_id: int = 0, group_id: int = 0) -> None:
    """Raises NotFound."""
    session.post("/api/v1/roles/remove-assignments", _assignment(session, name, user_id, group_id))


def _assignment(session: Session, name: str, user_id: int, group_id: int) -> Json:
    assignment = {"role": {"roleId": _role_id(session, name)}, "scopeCluster": True}
    if group_id:
        return {"groupRoleAssignments": [{"groupId": group_id, "roleAssignment": assignment}]}
    return {"userRoleAssignments": [{"userId": user_id, "roleAssignment": assignment}]}


def groups(session: Session, *, name: str = "", user_id: int = 0) -> List[Json]:
    """``groupId``, ``name`` and ``numMembers`` of each."""
    body = {"name": name, "userId": user_id}
    rows: List[Json] = session.post("/api/v1/groups/search", body, idempotent=True)["groups"]
    return [{**row["group"], "numMembers": row["numMembers"]} for row in rows]


def group(session: Session, name: str) -> Json:
    """With its ``users``. Raises NotFound, with the names that there are."""
    rows = groups(session)
    for row in rows:
        if row["name"] == name:
            details: Json = session.get(f"/api/v1/groups/{row['groupId']}")["group"]
            return details
    there = f"there are: {', '.join(row['name'] for row in rows)}" if rows else "there are none"
    raise NotFound(f"there is no group {name!r} ({there})")


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
