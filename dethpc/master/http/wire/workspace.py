"""Workspaces and projects on the wire. There is one of each until sharing is built."""

from __future__ import annotations

from dethpc.master.http.models import Pagination, Wire


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


class Templates(Wire):
    templates: list[str] = []
    pagination: Pagination
