"""Configuration policies, over the REST API."""

from __future__ import annotations

from dethpc.client.session import Json, Session


def get(session: Session, workspace_id: int = 0, workload: str = "EXPERIMENT") -> Json:
    """``invariant_config`` and ``constraints``, where there are any. ``workspace_id`` 0: those of the whole master; ``workload``:
    EXPERIMENT, or NTSC for tasks."""
    content: Json = session.get(_path(workspace_id, workload))["configPolicies"]
    return content


def put(session: Session, text: str, workspace_id: int = 0, workload: str = "EXPERIMENT") -> Json:
    """``text``: YAML or JSON. Raises ConfigError."""
    content: Json = session.put(_path(workspace_id, workload), {"configPolicies": text})["configPolicies"]
    return content


def delete(session: Session, workspace_id: int = 0, workload: str = "EXPERIMENT") -> None:
    session.delete(_path(workspace_id, workload))


def _path(workspace_id: int, workload: str) -> str:
    return f"/api/v1/config-policies/{f'workspaces/{workspace_id}' if workspace_id else 'global'}/{workload}"
