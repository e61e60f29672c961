"""Configuration policies, over the REST API."""

from __future__ import annotations

from typing import Any, Dict

from dethpc.client.session import Session

Json = Dict[str, Any]


def get(session: Session, workspace_id: int = 0) -> Json:
    """``invariant_config`` and ``constraints``, where there are any. ``workspace_id`` 0: those of the whole master."""
    content: Json = session.get(_path(workspace_id))["configPolicies"]
    return content


def put(session: Session, text: str, workspace_id: int = 0) -> Json:
    """``text``: YAML or JSON. Raises ConfigError."""
    content: Json = session.put(_path(workspace_id), {"configPolicies": text})["configPolicies"]
    return content


def delete(session: Session, workspace_id: int = 0) -> None:
    session.delete(_path(workspace_id))


def _path(workspace_id: int) -> str:
    return f"/api/v1/config-policies/{f'workspaces/{workspace_id}' if workspace_id else 'global'}/EXPERIMENT"
