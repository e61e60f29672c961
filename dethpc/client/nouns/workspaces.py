"""Workspaces and projects, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, List

from dethpc.client import names
from dethpc.client.session import Json, Session


def workspaces(session: Session, **params: Any) -> List[Json]:
    """``params``: filters, order and page, as the wire has them."""
    rows: List[Json] = session.get("/api/v1/workspaces", params)["workspaces"]
    return rows


def workspace(session: Session, name: str) -> Json:
    """The one of this name or id. Raises NotFound, with names like it."""
    return names.find("workspace", name, workspaces(session, nameCaseSensitive=name) or workspaces(session))


def create_workspace(session: Session, name: str, **fields: Any) -> Json:
    """``fields`` as the wire has them. Raises Refused."""
    row: Json = session.post("/api/v1/workspaces", {"name": name, **fields})["workspace"]
    return row


def change_workspace(session: Session, workspace_id: int, **fields: Any) -> Json:
    """Raises NotFound, Refused."""
    row: Json = session.patch(f"/api/v1/workspaces/{workspace_id}", fields)["workspace"]
    return row


def act_on_workspace(session: Session, workspace_id: int, action: str) -> None:
    """``action``: archive, unarchive, pin or unpin. Raises NotFound, Refused."""
    session.post(f"/api/v1/workspaces/{workspace_id}/{action}")


def delete_workspace(session: Session, workspace_id: int) -> None:
    """Raises NotFound; Refused while it has projects."""
    session.delete(f"/api/v1/workspaces/{workspace_id}")


def pools(session: Session, workspace_id: int) -> List[str]:
    """Names of the pools that it may use. Raises NotFound."""
    pool_names: List[str] = session.get(f"/api/v1/workspaces/{workspace_id}/available-resource-pools")["resourcePools"]
    return pool_names


def projects(session: Session, workspace_id: int = 0, **params: Any) -> List[Json]:
    """Those of the workspace; 0: of all. ``params``: filters, order and page, as the wire has them. Raises NotFound."""
    rows: List[Json] = session.get(f"/api/v1/workspaces/{workspace_id}/projects", params)["projects"]
    return rows


def project(session: Session, workspace_name: str, name: str) -> Json:
    """The one of this name or id in the workspace of this name or id. Raises NotFound, with names like it."""
    rows = projects(session, workspace(session, workspace_name)["id"])
    return names.find("project", name, rows, command=f"det workspace list-projects {workspace_name}")


def project_of_any_workspace(session: Session, name: str) -> Json:
    """The one of this name or id. Raises NotFound, with names like it; Refused where workspaces have several of this name."""
    return names.find("project", name, projects(session), command="det project list")


def project_by_id(session: Session, project_id: int) -> Json:
    """Raises NotFound."""
    row: Json = session.get(f"/api/v1/projects/{project_id}")["project"]
    return row


def create_project(session: Session, workspace_id: int, name: str, description: str = "", key: str = "") -> Json:
    """Raises NotFound, Refused."""
    body = {"workspaceId": workspace_id, "name": name, "description": description, "key": key or None}
    row: Json = session.post(f"/api/v1/workspaces/{workspace_id}/projects", body)["project"]
    return row


def change_project(session: Session, project_id: int, **fields: Any) -> Json:
    """Raises NotFound, Refused."""
    row: Json = session.patch(f"/api/v1/projects/{project_id}", fields)["project"]
    return row


def act_on_project(session: Session, project_id: int, action: str) -> None:
    """``action``: archive or unarchive. Raises NotFound, Refused."""
    session.post(f"/api/v1/projects/{project_id}/{action}")


def set_notes(session: Session, project_id: int, notes: List[Json]) -> List[Json]:
    """``notes``: each with ``name`` and ``contents``. Raises NotFound."""
    rows: List[Json] = session.put(f"/api/v1/projects/{project_id}/notes", {"notes": notes})["notes"]
    return rows


def delete_project(session: Session, project_id: int) -> None:
    """Raises NotFound; Refused while it has experiments."""
    session.delete(f"/api/v1/projects/{project_id}")


def move_project(session: Session, project_id: int, workspace_id: int) -> None:
    """Raises NotFound, Refused."""
    body = {"projectId": project_id, "destinationWorkspaceId": workspace_id}
    session.post(f"/api/v1/projects/{project_id}/move", body)


def move_experiment(session: Session, experiment_id: int, project_id: int) -> None:
    """Raises NotFound, Refused."""
    body = {"experimentId": experiment_id, "destinationProjectId": project_id}
    session.post(f"/api/v1/experiments/{experiment_id}/move", body)
