"""Workspaces, their projects, and the resource pools that they may use."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from dethpc.client.nouns import workspaces
from dethpc.client.session import Session
from dethpc.experimental.experiment import Experiment


class ResourcePool:
    """A resource pool, by its name. Every workspace may use it: binding it to some is refused."""

    def __init__(self, session: Session, name: str = "") -> None:
        self.name = name
        self._session = session

    def add_bindings(self, workspace_names: List[str]) -> None:
        """Raises NotSupportedYet."""
        self._bind(self._session.post, workspace_names)

    def remove_bindings(self, workspace_names: List[str]) -> None:
        """Raises NotSupportedYet."""
        self._bind(self._session.delete, workspace_names)

    def replace_bindings(self, workspace_names: List[str]) -> None:
        """Raises NotSupportedYet."""
        self._bind(self._session.put, workspace_names)

    def list_workspaces(self) -> List[Workspace]:
        """Those that may use it: all of them."""
        return [Workspace._from_wire(self._session, wire) for wire in workspaces.workspaces(self._session)]

    def _bind(self, request: Callable[..., Any], workspace_names: List[str]) -> None:
        body = {"resourcePoolName": self.name, "workspaceNames": workspace_names}
        request(f"/api/v1/resource-pools/{self.name}/workspace-bindings", body)


class Project:
    """A project. Its attributes are as of when it was fetched; ``reload`` fetches it again. ``notes`` have a name and contents."""

    def __init__(self, session: Session, project_id: int) -> None:
        self._session = session
        self.id = project_id
        self.archived: Optional[bool] = None
        self.description: Optional[str] = None
        self.n_active_experiments: Optional[int] = None
        self.n_experiments: Optional[int] = None
        self.name: Optional[str] = None
        self.notes: Optional[List[Dict[str, str]]] = None
        self.workspace_id: Optional[int] = None
        self.username: Optional[str] = None
        self.key: Optional[str] = None

    def __repr__(self) -> str:
        return f"Project(id={self.id}, name={self.name})"

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> Project:
        project = cls(session, wire["id"])
        project._take(wire)
        return project

    def _take(self, wire: Dict[str, Any]) -> None:
        self.archived = wire.get("archived")
        self.description = wire.get("description")
        self.n_active_experiments = wire.get("numActiveExperiments")
        self.n_experiments = wire.get("numExperiments")
        self.name = wire.get("name")
        self.notes = wire.get("notes") or []
        self.workspace_id = wire.get("workspaceId")
        self.username = wire.get("username")
        self.key = wire.get("key")

    def reload(self) -> None:
        self._take(workspaces.project_by_id(self._session, self.id))

    def list_experiments(self) -> List[Experiment]:
        params = {"projectId": self.id, "limit": -1}
        rows = self._session.get("/api/v1/experiments", params)["experiments"]
        return [Experiment._from_wire(self._session, wire) for wire in rows]

    def set_description(self, description: str) -> None:
        """Raises Refused."""
        self._take(workspaces.change_project(self._session, self.id, description=description))

    def set_key(self, key: str) -> None:
        """Raises Refused."""
        self._take(workspaces.change_project(self._session, self.id, key=key))

    def set_name(self, name: str) -> None:
        """Raises Refused."""
        self._take(workspaces.change_project(self._session, self.id, name=name))

    def archive(self) -> None:
        workspaces.act_on_project(self._session, self.id, "archive")
        self.archived = True

    def unarchive(self) -> None:
        workspaces.act_on_project(self._session, self.id, "unarchive")
        self.archived = False

    def add_note(self, name: str, contents: str) -> None:
        """Names of notes need not differ."""
        self.reload()
        notes = [*(self.notes or []), {"name": name, "contents": contents}]
        self.notes = workspaces.set_notes(self._session, self.id, notes)

    def remove_note(self, name: str) -> None:
        """Raises ValueError where there is no note of this name, or more than one."""
        self.reload()
        others = [note for note in self.notes or [] if note["name"] != name]
        count = len(self.notes or []) - len(others)
        if count != 1:
            raise ValueError(f"project {self.name!r} has {count or 'no'} notes called {name!r}")
        self.notes = workspaces.set_notes(self._session, self.id, others)

    def clear_notes(self) -> None:
        self.notes = workspaces.set_notes(self._session, self.id, [])


class Workspace:
    """A workspace, by its id or its name. Raises ValueError unless exactly one is given, NotFound."""

    def __init__(
        self, session: Session, workspace_id: Optional[int] = None, workspace_name: Optional[str] = None
    ) -> None:
        if (workspace_id is None) == (workspace_name is None):
            raise ValueError("Workspace takes either workspace_id or workspace_name")
        self._session = session
        self.name = workspace_name
        self.id: int = workspace_id or workspaces.workspace(session, str(workspace_name))["id"]

    def __repr__(self) -> str:
        return f"Workspace(id={self.id}, name={self.name})"

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> Workspace:
        workspace = cls(session, wire["id"])
        workspace.name = wire["name"]
        return workspace

    def reload(self) -> None:
        self.name = self._session.get(f"/api/v1/workspaces/{self.id}")["workspace"]["name"]

    def list_pools(self) -> List[ResourcePool]:
        """Those that its experiments may use."""
        return [ResourcePool(self._session, name) for name in workspaces.pools(self._session, self.id)]

    def create_project(self, name: str, description: Optional[str] = None) -> Project:
        """Raises Refused."""
        wire = workspaces.create_project(self._session, self.id, name, description or "")
        return Project._from_wire(self._session, wire)

    def delete_project(self, name: str) -> None:
        """Raises NotFound; Refused while it has experiments."""
        workspaces.delete_project(self._session, self.get_project(name).id)

    def get_project(self, project_name: str) -> Project:
        """Raises NotFound."""
        if self.name is None:
            self.reload()
        return Project._from_wire(self._session, workspaces.project(self._session, str(self.name), project_name))

    def list_projects(self) -> List[Project]:
        return [Project._from_wire(self._session, wire) for wire in workspaces.projects(self._session, self.id)]
