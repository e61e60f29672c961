"""Routes of workspaces and projects: there is one of each, and it holds all experiments."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.errors import NotFound
from dethpc.master.http.access import Limit, Offset, OrderBy, Owner, Reading, SortBy
from dethpc.master.http.auth import Principal
from dethpc.master.http.models import Pagination, Wire, paged
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import ExperimentFilter, Order, Page


class Project(Wire):
    id: int = 1
    name: str = "Uncategorized"
    key: str = "UNCATEGORIZED"
    description: str = ""
    workspace_id: int = 1
    workspace_name: str = "Uncategorized"
    username: str
    user_id: int = 1
    archived: bool = False
    immutable: bool = True
    notes: list[str] = []
    num_experiments: int
    num_active_experiments: int
    num_runs: int = 0
    state: str = "WORKSPACE_STATE_UNSPECIFIED"
    error_message: str = ""
    last_experiment_started_at: str | None = None


class Workspace(Wire):
    id: int = 1
    name: str = "Uncategorized"
    username: str
    user_id: int = 1
    archived: bool = False
    immutable: bool = True
    pinned: bool = True
    num_projects: int = 1
    num_experiments: int
    state: str = "WORKSPACE_STATE_UNSPECIFIED"
    error_message: str = ""


class ProjectAnswer(Wire):
    project: Project


class Projects(Wire):
    projects: list[Project]
    pagination: Pagination


class WorkspaceAnswer(Wire):
    workspace: Workspace


class Workspaces(Wire):
    workspaces: list[Workspace]
    pagination: Pagination


router = new_router(prefix="/api/v1", tags=["workspaces"])

NAME = "Uncategorized"
OWNER_ID = 1


def _count(connection: Connection, *states: str) -> int:
    criteria = ExperimentFilter(states=frozenset(states))
    return queries.list_experiments(connection, criteria, Order(), Page(limit=0))[1]


def _workspace(connection: Connection, who: Principal) -> Workspace:
    return Workspace(username=who.owner, num_experiments=_count(connection))


def _project(connection: Connection, who: Principal) -> Project:
    return Project(
        username=who.owner,
        num_experiments=_count(connection),
        num_active_experiments=_count(connection, "ACTIVE"),
    )


class _ListQuery:
    """Whether the one that there is, is among those that a list asks for; alone it is in every order."""

    def __init__(
        self,
        who: Owner,
        name: str = "",
        archived: bool | None = None,
        users: Annotated[tuple[str, ...], Query()] = (),
        user_ids: Annotated[tuple[int, ...], Query(alias="userIds")] = (),
        sort_by: SortBy = "",
        order_by: OrderBy = "",
    ) -> None:
        self.matches = (
            name.lower() in NAME.lower()
            and not archived
            and (not users or who.owner in users)
            and (not user_ids or OWNER_ID in user_ids)
        )


@router.get("/workspaces")
def workspaces(
    connection: Reading,
    who: Owner,
    query: Annotated[_ListQuery, Depends()],
    exact_name: Annotated[str, Query(alias="nameCaseSensitive")] = "",
    pinned: bool | None = None,
    limit: Limit = 0,
    offset: Offset = 0,
) -> Workspaces:
    there = query.matches and exact_name in ("", NAME) and pinned is not False
    items, pagination = paged([_workspace(connection, who)] if there else [], offset, limit)
    return Workspaces(workspaces=items, pagination=pagination)


@router.get("/workspaces/{workspace_id}")
def workspace(workspace_id: int, connection: Reading, who: Owner) -> WorkspaceAnswer:
    if workspace_id != 1:
        raise NotFound(f"workspace {workspace_id} not found")
    return WorkspaceAnswer(workspace=_workspace(connection, who))


@router.get("/workspaces/{workspace_id}/projects")
def projects(
    workspace_id: int,
    connection: Reading,
    who: Owner,
    query: Annotated[_ListQuery, Depends()],
    limit: Limit = 0,
    offset: Offset = 0,
) -> Projects:
    """Of every workspace when its id is 0."""
    if workspace_id not in (0, 1):
        raise NotFound(f"workspace {workspace_id} not found")
    items, pagination = paged([_project(connection, who)] if query.matches else [], offset, limit)
    return Projects(projects=items, pagination=pagination)


@router.get("/projects/{project_id}")
def project(project_id: int, connection: Reading, who: Owner) -> ProjectAnswer:
    if project_id != 1:
        raise NotFound(f"project {project_id} not found")
    return ProjectAnswer(project=_project(connection, who))
