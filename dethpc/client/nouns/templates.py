"""Templates of configurations, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, List, Mapping
from urllib.parse import quote

from dethpc.client.session import Json, Session
from dethpc.domain.text.names import check_template


def templates(session: Session, **params: Any) -> List[Json]:
    """``params``: filters, order and page, as the wire has them."""
    rows: List[Json] = session.get("/api/v1/templates", params)["templates"]
    return rows


def get(session: Session, name: str) -> Json:
    """Raises NotFound, with the names that there are."""
    row: Json = session.get(_path(name))["template"]
    return row


def create(session: Session, name: str, config: Mapping[str, Any], workspace_id: int = 0) -> Json:
    """``workspace_id`` 0: Uncategorized. Raises ConfigError, NotFound, Refused."""
    body = {"name": name, "config": dict(config), "workspaceId": workspace_id}
    row: Json = session.post(_path(name), body)["template"]
    return row


def put(session: Session, name: str, config: Mapping[str, Any]) -> Json:
    """Create it, or put ``config`` in the place of what it was. Raises ConfigError, Refused."""
    row: Json = session.put(_path(name), {"name": name, "config": dict(config), "workspaceId": 0})["template"]
    return row


def change(session: Session, name: str, config: Mapping[str, Any]) -> Json:
    """Raises ConfigError, NotFound."""
    row: Json = session.patch(_path(name), dict(config))["template"]
    return row


def rename(session: Session, name: str, new_name: str) -> Json:
    """Raises NotFound, Refused."""
    row: Json = session.patch("/api/v1/template/rename", {"oldName": name, "newName": new_name})["template"]
    return row


def remove(session: Session, name: str) -> None:
    """Raises NotFound."""
    session.delete(_path(name))


def _path(name: str) -> str:
    """Raises Refused, before anything is sent, for what is no name: the address would be another one."""
    check_template(name)
    return f"/api/v1/templates/{quote(name, safe='')}"
