"""Routes of workspaces, and what answers about them and their projects show."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.config.loading import load_storage
from dethpc.config.source import dump
from dethpc.domain import records as stored
from dethpc.domain.records import UNCATEGORIZED, ConfigPolicy, User, WorkspacePin, WorkspaceRole
from dethpc.domain.text import names
from dethpc.errors import AlreadyExists, NotFound, Refused
from dethpc.master.durable.records import Records
from dethpc.master.experiments import filing
from dethpc.master.http.access import (
    Owner,
    Reading,
    TheCluster,
    TheLauncher,
    TheOrder,
    ThePage,
    TheRecords,
    Viewer,
    ViewerSomewhere,
)
from dethpc.master.http.models import Given, MaskedConfig, Pagination, UserText, Wire, time, time_or_none
from dethpc.master.http.nouns.users import AgentUserGroup
from dethpc.master.http.router import new_router
from dethpc.state.queries import records as queries
from dethpc.state.queries.projects import ProjectFigures, project_figures


class Workspace(Wire):
    id: int
    name: UserText
    username: str
    user_id: int
    archived: bool
    immutable: bool
    pinned: bool
    pinned_at: str | None
    num_projects: int
    num_experiments: int
    agent_user_group: AgentUserGroup | None
    checkpoint_storage_config: MaskedConfig
    default_compute_pool: str
    default_aux_pool: str
    state: str = "WORKSPACE_STATE_UNSPECIFIED"
    error_message: str = ""


class Note(Wire):
    name: Given = ""
    contents: Given = ""


class Project(Wire):
    id: int
    name: UserText
    key: str
    description: UserText
    workspace_id: int
    workspace_name: UserText
    username: str
    user_id: int
    archived: bool
    immutable: bool
    notes: list[Note]
    num_experiments: int
    num_active_experiments: int
    num_runs: int
    last_experiment_started_at: str | None
    state: str = "WORKSPACE_STATE_UNSPECIFIED"
    error_message: str = ""


class WorkspaceAnswer(Wire):
    workspace: Workspace


class NewWorkspaceAnswer(Wire):
    workspace: Workspace
    namespace_bindings: dict[str, Any] = {}  # of Kubernetes, which is not here


class Workspaces(Wire):
    workspaces: list[Workspace]
    pagination: Pagination


class Deleted(Wire):
    completed: bool = True


class PoolsOfWorkspace(Wire):
    resource_pools: list[str]
    pagination: Pagination


class WorkspaceFields(Wire):
    """What may be set. None: as it is; "" and an empty mapping: none."""

    name: Given | None = None
    agent_user_group: AgentUserGroup | None = None
    checkpoint_storage_config: dict[str, Any] | None = None
    default_compute_pool: str | None = None
    default_compute_resource_pool: str | None = None  # as releases before 0.20 call them
    default_aux_pool: str | None = None
    default_aux_resource_pool: str | None = None


router = new_router(prefix="/api/v1", tags=["workspaces"])

MOST_CHARACTERS = 80
"""Of the name of a workspace or project, as in Determined."""


class View:
    """What answers about workspaces and projects show, read at one instant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.workspaces = {row.id: row for row in queries.find(connection, stored.Workspace, deleted=False)}
        self.projects = {row.id: row for row in queries.find(connection, stored.Project, deleted=False)}
        self._names = {user.id: user.username for user in queries.find(connection, User)}

    def workspace_answers(self, rows: Iterable[stored.Workspace], user_id: int) -> list[Workspace]:
        rows = list(rows)
        pins = {
            pin.workspace_id: pin.created_at for pin in queries.find(self._connection, WorkspacePin, user_id=user_id)
        }
        within = {row.id: [one.id for one in self.projects.values() if one.workspace_id == row.id] for row in rows}
        figures = project_figures(self._connection, {id for ids in within.values() for id in ids})
        return [
            Workspace(
                id=row.id,
                name=row.name,
                username=self.username(row),
                user_id=row.user_id,
                archived=row.archived,
                immutable=row.id == UNCATEGORIZED,
                pinned=row.id in pins,
                pinned_at=time_or_none(pins.get(row.id)),
                num_projects=len(within[row.id]),
                num_experiments=sum(figures[id].experiments for id in within[row.id]),
                agent_user_group=AgentUserGroup.of(row.agent),
                checkpoint_storage_config=row.checkpoint_storage,
                default_compute_pool=row.pool,
                default_aux_pool=row.aux_pool,
            )
            for row in rows
        ]

    def project_answers(self, rows: Iterable[stored.Project]) -> list[Project]:
        rows = list(rows)
        figures = project_figures(self._connection, [row.id for row in rows])
        return [self._project(row, figures[row.id]) for row in rows]

    def _project(self, row: stored.Project, figures: ProjectFigures) -> Project:
        space = self.workspaces.get(row.workspace_id)
        return Project(
            id=row.id,
            name=row.name,
            key=row.key,
            description=row.description,
            workspace_id=row.workspace_id,
            workspace_name=space.name if space else "",
            username=self.username(row),
            user_id=row.user_id,
            archived=row.archived or bool(space and space.archived),
            immutable=row.id == UNCATEGORIZED,
            notes=[Note(**note) for note in row.notes],
            num_experiments=figures.experiments,
            num_active_experiments=figures.active,
            num_runs=figures.runs,
            last_experiment_started_at=None if figures.last_started_at is None else time(figures.last_started_at),
        )

    def username(self, row: stored.Workspace | stored.Project) -> str:
        return self._names.get(row.user_id, "")

    def workspace(self, workspace_id: int) -> stored.Workspace:
        """Raises NotFound."""
        if workspace_id not in self.workspaces:
            raise NotFound(f"workspace {workspace_id} not found")
        return self.workspaces[workspace_id]

    def started_at(self, project_ids: Sequence[int]) -> dict[int, float]:
        """When the last experiment of each was created; 0: none was."""
        figures = project_figures(self._connection, project_ids)
        return {id: one.last_started_at or 0.0 for id, one in figures.items()}


class Filter:
    """What a list of workspaces or projects is asked for by."""

    def __init__(
        self,
        sorting: TheOrder,
        name: str = "",
        exact_name: Annotated[str, Query(alias="nameCaseSensitive")] = "",
        archived: bool | None = None,
        users: Annotated[tuple[str, ...], Query()] = (),
        user_ids: Annotated[tuple[int, ...], Query(alias="userIds")] = (),
    ) -> None:
        self._name, self._exact_name, self._archived = name.lower(), exact_name, archived
        self._users, self._user_ids = users, user_ids
        self.order = sorting.order()

    def matches(self, row: Any, username: str) -> bool:
        return (
            self._name in row.name.lower()
            and self._exact_name in ("", row.name)
            and self._archived in (None, row.archived)
            and (not self._users or username in self._users)
            and (not self._user_ids or row.user_id in self._user_ids)
        )

    def sorted(self, rows: Iterable[Any], keys: dict[str, Callable[[Any], Any]]) -> list[Any]:
        """Raises Refused for a key that there is not."""
        if self.order.key not in keys:
            raise Refused(f"cannot sort by {self.order.key}, only by {', '.join(keys)}")
        return sorted(rows, key=lambda row: (keys[self.order.key](row), row.id), reverse=self.order.descending)


# --- workspaces


@router.get("/workspaces")
def workspaces(
    connection: Reading,
    who: ViewerSomewhere,
    query: Annotated[Filter, Depends()],
    paging: ThePage,
    pinned: bool | None = None,
) -> Workspaces:
    view = View(connection)
    me = who.user_id
    pins = {pin.workspace_id for pin in queries.find(connection, WorkspacePin, user_id=me)}
    rows = [
        row
        for row in view.workspaces.values()
        if query.matches(row, view.username(row)) and pinned in (None, row.id in pins)
    ]
    rows = query.sorted(rows, {"id": lambda row: row.id, "name": lambda row: row.name.lower()})
    items, pagination = paging.of(rows)
    return Workspaces(workspaces=view.workspace_answers(items, me), pagination=pagination)


@router.post("/workspaces")
def create_workspace(
    request: WorkspaceFields, records: TheRecords, cluster: TheCluster, who: Owner
) -> NewWorkspaceAnswer:
    with records.exclusive():
        name = name_of("workspace", request.name or "", records.find(stored.Workspace, deleted=False))
        row = records.add(
            stored.Workspace,
            name=name,
            user_id=who.user_id,
            created_at=clock.time(),
            **_changes(request, _pools(cluster)),
        )
        records.put(WorkspacePin(row.user_id, row.id, row.created_at))
    return NewWorkspaceAnswer(workspace=_workspace_answer(records, row.id, who.user_id))


@router.get("/workspaces/{workspace_id}")
def workspace(workspace_id: int, records: TheRecords, who: Viewer) -> WorkspaceAnswer:
    return WorkspaceAnswer(workspace=_workspace_answer(records, workspace_id, who.user_id))


@router.patch("/workspaces/{workspace_id}")
def change_workspace(
    workspace_id: int, request: WorkspaceFields, records: TheRecords, cluster: TheCluster, who: Owner
) -> WorkspaceAnswer:
    with records.exclusive():
        row = mutable(filing.workspace(records, workspace_id), "workspace")
        if row.archived:
            raise Refused(f"workspace {row.name!r} is archived: unarchive it before you change it")
        if request.name is not None and request.name != row.name:
            others = [other for other in records.find(stored.Workspace, deleted=False) if other.id != row.id]
            row = replace(row, name=name_of("workspace", request.name, others))
        records.put(replace(row, **_changes(request, _pools(cluster))))
    return WorkspaceAnswer(workspace=_workspace_answer(records, workspace_id, who.user_id))


@router.delete("/workspaces/{workspace_id}")
def delete_workspace(workspace_id: int, records: TheRecords, launcher: TheLauncher, who: Owner) -> Deleted:
    """One that holds nothing but tasks, which are killed."""
    with records.exclusive():
        row = mutable(filing.workspace(records, workspace_id), "workspace")
        kinds: dict[str, list[Any]] = {
            "projects": records.find(stored.Project, deleted=False),
            "models": records.find(stored.Model, deleted=False),
            "templates": records.find(stored.Template),
            "webhooks": records.find(stored.Webhook, deleted=False),
        }
        inside = []
        for kind, rows in kinds.items():
            if names := sorted(str(one.name or one.id) for one in rows if one.workspace_id == row.id):
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                inside.append(f"{kind} ({', '.join(names[:5])}{more})")
        if inside:
            raise Refused(f"workspace {row.name!r} is not empty: it has {', '.join(inside)}; delete or move them first")
        launcher.delete_workspace(row)
        records.copy(stored.Workspace, [(row.id,)])
        for kind_of_record in OF_ONE:
            for record in records.find(kind_of_record, workspace_id=row.id):
                records.drop(record)
    return Deleted()


OF_ONE: tuple[type[Any], ...] = (WorkspacePin, WorkspaceRole, ConfigPolicy)
"""Records that go with their workspace."""


@router.post("/workspaces/{workspace_id}/archive")
def archive_workspace(workspace_id: int, records: TheRecords, who: Owner) -> dict[str, Any]:
    """Its projects take no experiments until it is unarchived."""
    _archive_workspace(records, workspace_id, True)
    return {}


@router.post("/workspaces/{workspace_id}/unarchive")
def unarchive_workspace(workspace_id: int, records: TheRecords, who: Owner) -> dict[str, Any]:
    _archive_workspace(records, workspace_id, False)
    return {}


@router.post("/workspaces/{workspace_id}/pin")
def pin_workspace(workspace_id: int, records: TheRecords, who: Viewer) -> dict[str, Any]:
    """Put it at the head of one's own list."""
    with records.exclusive():
        row, me = filing.workspace(records, workspace_id), who.user_id
        if not records.find(WorkspacePin, user_id=me, workspace_id=row.id):
            records.put(WorkspacePin(me, row.id, clock.time()))
    return {}


@router.post("/workspaces/{workspace_id}/unpin")
def unpin_workspace(workspace_id: int, records: TheRecords, who: Viewer) -> dict[str, Any]:
    row = filing.workspace(records, workspace_id)
    for pin in records.find(WorkspacePin, user_id=who.user_id, workspace_id=row.id):
        records.drop(pin)
    return {}


@router.get("/workspaces/{workspace_id}/available-resource-pools")
def pools_of_workspace(
    workspace_id: int, records: TheRecords, cluster: TheCluster, who: Viewer, paging: ThePage
) -> PoolsOfWorkspace:
    """All of them: pools are bound to no workspace."""
    filing.workspace(records, workspace_id)
    items, pagination = paging.of(sorted(_pools(cluster)))
    return PoolsOfWorkspace(resource_pools=items, pagination=pagination)


class WorkspacesOfPool(Wire):
    workspace_ids: list[int]
    pagination: Pagination


@router.get("/resource-pools/{name}/workspace-bindings")
def workspaces_of_pool(
    name: str, records: TheRecords, cluster: TheCluster, who: ViewerSomewhere, paging: ThePage
) -> WorkspacesOfPool:
    """None: pools are bound to no workspace, so that each may use every pool."""
    if name not in _pools(cluster):
        raise NotFound(f"there is no resource pool {name!r}, only {', '.join(sorted(_pools(cluster)))}")
    return WorkspacesOfPool(workspace_ids=[], pagination=paging.pagination(0, max(paging.offset, 0), 0))


# --- parts of them


def _pools(cluster: TheCluster) -> set[str]:
    return {pool.name for pool in cluster.pools()}


def _workspace_answer(records: Records, workspace_id: int, user_id: int) -> Workspace:
    """Raises NotFound."""
    with records.reading() as connection:
        view = View(connection)
        return view.workspace_answers([view.workspace(workspace_id)], user_id)[0]


def mutable(row: Any, what: str) -> Any:
    """Raises Refused for the one that holds what names no other."""
    if row.id == UNCATEGORIZED:
        raise Refused(f"{what} {row.name!r} holds what names no other {what}: it can be neither changed nor deleted")
    return row


def name_of(what: str, name: str, others: Iterable[Any]) -> str:
    """The name, which none of ``others`` has in whatever case. Raises Refused, AlreadyExists."""
    names.check_handle(what, name, MOST_CHARACTERS)
    must_differ(what, name, others)
    return name


def must_differ(what: str, name: str, others: Iterable[Any]) -> None:
    """Raises AlreadyExists for a name that one of ``others`` has in whatever case."""
    for other in others:
        if other.name.lower() == name.lower():
            more = "" if other.name == name else f" as {other.name!r}; names must differ in more than case"
            raise AlreadyExists(f"{what} {name!r} already exists{more}")


def _changes(request: WorkspaceFields, pools: set[str]) -> dict[str, Any]:
    """The fields of the record that the request gives, but for the name. Raises Refused, ConfigError."""
    pool = (
        request.default_compute_pool
        if request.default_compute_pool is not None
        else request.default_compute_resource_pool
    )
    aux_pool = request.default_aux_pool if request.default_aux_pool is not None else request.default_aux_resource_pool
    for name in filter(None, (pool, aux_pool)):
        if name not in pools:
            raise Refused(f"there is no resource pool {name!r}; there are: {', '.join(sorted(pools))}")
    changes: dict[str, Any] = {
        name: value for name, value in (("pool", pool), ("aux_pool", aux_pool)) if value is not None
    }
    if (storage := request.checkpoint_storage_config) is not None:
        if storage:
            load_storage(dump({"checkpoint_storage": storage}), file="checkpointStorageConfig")
        changes["checkpoint_storage"] = storage or None
    if (agent := request.agent_user_group) is not None:
        changes["agent"] = agent.link
    return changes


def _archive_workspace(records: Records, workspace_id: int, archived: bool) -> None:
    with records.exclusive():
        row = mutable(filing.workspace(records, workspace_id), "workspace")
        records.put(replace(row, archived=archived))
