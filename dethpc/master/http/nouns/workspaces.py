"""Routes of workspaces and their projects, and of moves between them."""

from __future__ import annotations

import secrets
import string
import time as clock
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.config.loading import load_storage
from dethpc.config.source import dump
from dethpc.domain import records as stored
from dethpc.domain.records import UNCATEGORIZED, User, WorkspacePin
from dethpc.errors import AlreadyExists, NotFound, Refused
from dethpc.master.durable.records import Records
from dethpc.master.experiments import filing
from dethpc.master.http.access import (
    Limit,
    Offset,
    OrderBy,
    Owner,
    Reading,
    SortBy,
    TheCluster,
    TheRecords,
    order,
)
from dethpc.master.http.models import Given, MaskedConfig, Pagination, Told, Wire, paged, time, time_or_none
from dethpc.master.http.router import new_router
from dethpc.state.queries import records as queries
from dethpc.state.queries.projects import ProjectFigures, project_figures


class AgentUserGroup(Wire):
    """A Unix user and group. Jobs run as the owner of the master all the same."""

    agent_uid: int | None = None
    agent_user: str | None = None
    agent_gid: int | None = None
    agent_group: str | None = None


class Workspace(Wire):
    id: int
    name: Told
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
    name: Told
    key: str
    description: Told
    workspace_id: int
    workspace_name: Told
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


class ProjectAnswer(Wire):
    project: Project


class Projects(Wire):
    projects: list[Project]
    pagination: Pagination


class ActiveProjects(Wire):
    projects: list[Project]


class Notes(Wire):
    notes: list[Note]


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


class ProjectFields(Wire):
    name: Given | None = None
    key: Given | None = None
    description: Given | None = None


class NewNotes(Wire):
    notes: list[Note] = []


class ProjectMove(Wire):
    destination_workspace_id: int


router = new_router(prefix="/api/v1", tags=["workspaces"])

MOST_CHARACTERS = 80
"""Of the name of a workspace or project, as in Determined."""


class View:
    """What answers about workspaces and projects show, read at one instant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.workspaces = {row.id: row for row in queries.find(connection, stored.Workspace) if not row.deleted}
        self.projects = {row.id: row for row in queries.find(connection, stored.Project) if not row.deleted}
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
                username=self._names.get(row.user_id, ""),
                user_id=row.user_id,
                archived=row.archived,
                immutable=row.id == UNCATEGORIZED,
                pinned=row.id in pins,
                pinned_at=time_or_none(pins.get(row.id)),
                num_projects=len(within[row.id]),
                num_experiments=sum(figures[id].experiments for id in within[row.id]),
                agent_user_group=None if row.agent is None else AgentUserGroup(**row.agent),
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
            username=self._names.get(row.user_id, ""),
            user_id=row.user_id,
            archived=row.archived or bool(space and space.archived),
            immutable=row.id == UNCATEGORIZED,
            notes=[Note(**note) for note in row.notes],
            num_experiments=figures.experiments,
            num_active_experiments=figures.active,
            num_runs=figures.runs,
            last_experiment_started_at=None if figures.last_started_at is None else time(figures.last_started_at),
        )

    def workspace(self, workspace_id: int) -> stored.Workspace:
        """Raises NotFound."""
        if workspace_id not in self.workspaces:
            raise NotFound(f"workspace {workspace_id} not found")
        return self.workspaces[workspace_id]

    def started_at(self, project_ids: Sequence[int]) -> dict[int, float]:
        """When the last experiment of each was created; 0: none was."""
        figures = project_figures(self._connection, project_ids)
        return {id: one.last_started_at or 0.0 for id, one in figures.items()}


def viewing(connection: Reading) -> View:
    return View(connection)


class Filter:
    """What a list of workspaces or projects is asked for by."""

    def __init__(
        self,
        name: str = "",
        exact_name: Annotated[str, Query(alias="nameCaseSensitive")] = "",
        archived: bool | None = None,
        users: Annotated[tuple[str, ...], Query()] = (),
        user_ids: Annotated[tuple[int, ...], Query(alias="userIds")] = (),
        sort_by: SortBy = "",
        order_by: OrderBy = "",
    ) -> None:
        self._name, self._exact_name, self._archived = name.lower(), exact_name, archived
        self._users, self._user_ids = users, user_ids
        self.order = order(sort_by, order_by)

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
    who: Owner,
    query: Annotated[Filter, Depends()],
    pinned: bool | None = None,
    limit: Limit = 0,
    offset: Offset = 0,
) -> Workspaces:
    view = View(connection)
    me = _user_id(connection, who.owner)
    pins = {pin.workspace_id for pin in queries.find(connection, WorkspacePin, user_id=me)}
    names = {user.id: user.username for user in queries.find(connection, User)}
    rows = [
        row
        for row in view.workspaces.values()
        if query.matches(row, names.get(row.user_id, "")) and pinned in (None, row.id in pins)
    ]
    rows = query.sorted(rows, {"id": lambda row: row.id, "name": lambda row: row.name.lower()})
    items, pagination = paged(rows, offset, limit)
    return Workspaces(workspaces=view.workspace_answers(items, me), pagination=pagination)


@router.post("/workspaces")
def create_workspace(
    request: WorkspaceFields, records: TheRecords, cluster: TheCluster, who: Owner
) -> NewWorkspaceAnswer:
    with records.exclusive():
        name = _name_of("workspace", request.name or "", _live(records, stored.Workspace))
        row = stored.Workspace(0, name, _user(records, who.owner).id, clock.time())
        fields = _set(row, request, _pools(cluster))
        row = records.add(
            stored.Workspace, **{key: getattr(fields, key) for key in stored.Workspace.__slots__ if key != "id"}
        )
        records.put(WorkspacePin(row.user_id, row.id, row.created_at))
    return NewWorkspaceAnswer(workspace=_workspace_answer(records, row.id, who.owner))


@router.get("/workspaces/{workspace_id}")
def workspace(workspace_id: int, records: TheRecords, who: Owner) -> WorkspaceAnswer:
    return WorkspaceAnswer(workspace=_workspace_answer(records, workspace_id, who.owner))


@router.patch("/workspaces/{workspace_id}")
def change_workspace(
    workspace_id: int, request: WorkspaceFields, records: TheRecords, cluster: TheCluster, who: Owner
) -> WorkspaceAnswer:
    with records.exclusive():
        row = _mutable(filing.workspace(records, workspace_id), "workspace")
        if row.archived:
            raise Refused(f"workspace {row.name!r} is archived: unarchive it before you change it")
        if request.name is not None and request.name != row.name:
            others = [other for other in _live(records, stored.Workspace) if other.id != row.id]
            row = replace(row, name=_name_of("workspace", request.name, others))
        records.put(_set(row, request, _pools(cluster)))
    return WorkspaceAnswer(workspace=_workspace_answer(records, workspace_id, who.owner))


@router.delete("/workspaces/{workspace_id}")
def delete_workspace(workspace_id: int, records: TheRecords, who: Owner) -> Deleted:
    """One that has no projects."""
    with records.exclusive():
        row = _mutable(filing.workspace(records, workspace_id), "workspace")
        if within := [one.name for one in _live(records, stored.Project) if one.workspace_id == row.id]:
            first = ", ".join(sorted(within)[:5])
            count = f"{len(within)} project{'s' * (len(within) > 1)}"
            raise Refused(f"workspace {row.name!r} is not empty: it has {count} ({first}); delete or move them first")
        records.put(replace(row, deleted=True))
        for pin in records.find(WorkspacePin, workspace_id=row.id):
            records.drop(pin)
    return Deleted()


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
def pin_workspace(workspace_id: int, records: TheRecords, who: Owner) -> dict[str, Any]:
    """Put it at the head of one's own list."""
    row, me = filing.workspace(records, workspace_id), _user(records, who.owner).id
    if not records.find(WorkspacePin, user_id=me, workspace_id=row.id):
        records.put(WorkspacePin(me, row.id, clock.time()))
    return {}


@router.post("/workspaces/{workspace_id}/unpin")
def unpin_workspace(workspace_id: int, records: TheRecords, who: Owner) -> dict[str, Any]:
    row = filing.workspace(records, workspace_id)
    for pin in records.find(WorkspacePin, user_id=_user(records, who.owner).id, workspace_id=row.id):
        records.drop(pin)
    return {}


@router.get("/workspaces/{workspace_id}/available-resource-pools")
def pools_of_workspace(
    workspace_id: int, records: TheRecords, cluster: TheCluster, who: Owner, limit: Limit = 0, offset: Offset = 0
) -> PoolsOfWorkspace:
    """All of them: pools are bound to no workspace."""
    filing.workspace(records, workspace_id)
    items, pagination = paged(sorted(_pools(cluster)), offset, limit)
    return PoolsOfWorkspace(resource_pools=items, pagination=pagination)


@router.get("/workspaces/{workspace_id}/projects")
def projects(
    workspace_id: int,
    connection: Reading,
    who: Owner,
    query: Annotated[Filter, Depends()],
    limit: Limit = 0,
    offset: Offset = 0,
) -> Projects:
    """Of every workspace when its id is 0."""
    view = View(connection)
    if workspace_id:
        view.workspace(workspace_id)
    names = {user.id: user.username for user in queries.find(connection, User)}
    rows = [
        row
        for row in view.projects.values()
        if workspace_id in (0, row.workspace_id) and query.matches(row, names.get(row.user_id, ""))
    ]
    by_start = query.order.key == "last_experiment_start_time"
    started_at = view.started_at([row.id for row in rows]) if by_start else {}
    keys: dict[str, Callable[[Any], Any]] = {
        "id": lambda row: row.id,
        "creation_time": lambda row: row.created_at,
        "name": lambda row: row.name.lower(),
        "description": lambda row: row.description.lower(),
        "last_experiment_start_time": lambda row: started_at[row.id],
    }
    items, pagination = paged(query.sorted(rows, keys), offset, limit)
    return Projects(projects=view.project_answers(items), pagination=pagination)


# --- projects


@router.post("/workspaces/{workspace_id}/projects")
def create_project(workspace_id: int, request: ProjectFields, records: TheRecords, who: Owner) -> ProjectAnswer:
    with records.exclusive():
        space = filing.workspace(records, workspace_id)
        if space.archived:
            raise Refused(f"workspace {space.name!r} is archived: unarchive it, or choose another workspace")
        all_projects = _live(records, stored.Project)
        row = records.add(
            stored.Project,
            workspace_id=workspace_id,
            name=_name_of(
                "project", request.name or "", [one for one in all_projects if one.workspace_id == workspace_id]
            ),
            key=_key(request.key, request.name or "", all_projects),
            user_id=_user(records, who.owner).id,
            created_at=clock.time(),
            description=request.description or "",
        )
    return _project_answer(records, row.id)


@router.get("/projects/{project_id}")
def project(project_id: int, records: TheRecords, who: Owner) -> ProjectAnswer:
    return _project_answer(records, project_id)


@router.get("/projects/key/{key}")
def project_by_key(key: str, records: TheRecords, who: Owner) -> ProjectAnswer:
    for row in _live(records, stored.Project):
        if row.key == key.upper():
            return _project_answer(records, row.id)
    raise NotFound(f"project with key {key} not found")


@router.patch("/projects/{project_id}")
def change_project(project_id: int, request: ProjectFields, records: TheRecords, who: Owner) -> ProjectAnswer:
    with records.exclusive():
        row = _mutable(filing.project(records, project_id), "project")
        _refuse_archived(records, row)
        others = [other for other in _live(records, stored.Project) if other.id != row.id]
        if request.name is not None and request.name != row.name:
            there = [other for other in others if other.workspace_id == row.workspace_id]
            row = replace(row, name=_name_of("project", request.name, there))
        if request.key is not None and request.key != row.key:
            row = replace(row, key=_key(request.key, row.name, others))
        if request.description is not None:
            row = replace(row, description=request.description)
        records.put(row)
    return _project_answer(records, project_id)


@router.delete("/projects/{project_id}")
def delete_project(project_id: int, records: TheRecords, who: Owner) -> Deleted:
    """One that has no experiments."""
    with records.exclusive():
        row = _mutable(filing.project(records, project_id), "project")
        if number := _project_answer(records, project_id).project.num_experiments:
            count = f"{number} experiment{'s' * (number > 1)}"
            where = "delete them, or move them to another project first"
            raise Refused(f"project {row.name!r} is not empty: it has {count}; {where}")
        records.put(replace(row, deleted=True))
    return Deleted()


@router.post("/projects/{project_id}/archive")
def archive_project(project_id: int, records: TheRecords, who: Owner) -> dict[str, Any]:
    """It takes no experiments until it is unarchived."""
    _archive_project(records, project_id, True)
    return {}


@router.post("/projects/{project_id}/unarchive")
def unarchive_project(project_id: int, records: TheRecords, who: Owner) -> dict[str, Any]:
    _archive_project(records, project_id, False)
    return {}


@router.post("/projects/{project_id}/move")
def move_project(project_id: int, request: ProjectMove, records: TheRecords, who: Owner) -> dict[str, Any]:
    """To another workspace, with its experiments."""
    with records.exclusive():
        row = _mutable(filing.project(records, project_id), "project")
        space = filing.workspace(records, request.destination_workspace_id)
        if space.archived:
            raise Refused(f"workspace {space.name!r} is archived: unarchive it, or choose another workspace")
        _refuse_archived(records, row)
        if space.id != row.workspace_id:
            _name_of(
                "project", row.name, [one for one in _live(records, stored.Project) if one.workspace_id == space.id]
            )
            records.put(replace(row, workspace_id=space.id))
    return {}


@router.post("/projects/{project_id}/notes")
def add_note(project_id: int, request: Note, records: TheRecords, who: Owner) -> Notes:
    return _with_notes(records, project_id, lambda notes: [*notes, request])


@router.put("/projects/{project_id}/notes")
def set_notes(project_id: int, request: NewNotes, records: TheRecords, who: Owner) -> Notes:
    return _with_notes(records, project_id, lambda notes: request.notes)


@router.get("/user/projects/activity")
def active_projects(connection: Reading, who: Owner, limit: Limit = 0) -> ActiveProjects:
    """Those in which an experiment was created last come first."""
    view = View(connection)
    started_at = view.started_at(list(view.projects))
    rows = sorted(view.projects.values(), key=lambda row: (-started_at[row.id], row.id))
    items, _ = paged([row for row in rows if started_at[row.id]], 0, limit)
    return ActiveProjects(projects=view.project_answers(items))


# --- parts of them


def _live(records: Records, kind: type[Any]) -> list[Any]:
    return [row for row in records.find(kind) if not row.deleted]


def _user(records: Records, username: str) -> User:
    return records.find(User, username=username)[0]


def _user_id(connection: Connection, username: str) -> int:
    return queries.find(connection, User, username=username)[0].id


def _pools(cluster: TheCluster) -> set[str]:
    return {pool.name for pool in cluster.pools()}


def _workspace_answer(records: Records, workspace_id: int, username: str) -> Workspace:
    """Raises NotFound."""
    with records.reading() as connection:
        view = View(connection)
        return view.workspace_answers([view.workspace(workspace_id)], _user_id(connection, username))[0]


def _project_answer(records: Records, project_id: int) -> ProjectAnswer:
    """Raises NotFound."""
    row = filing.project(records, project_id)
    with records.reading() as connection:
        return ProjectAnswer(project=View(connection).project_answers([row])[0])


def _mutable(row: Any, what: str) -> Any:
    """Raises Refused for the one that holds what names no other."""
    if row.id == UNCATEGORIZED:
        raise Refused(f"{what} {row.name!r} holds what names no other {what}: it can be neither changed nor deleted")
    return row


def _refuse_archived(records: Records, row: stored.Project) -> None:
    if row.archived or filing.workspace(records, row.workspace_id).archived:
        raise Refused(f"project {row.name!r} is archived: unarchive it before you change it")


def _name_of(what: str, name: str, others: Iterable[Any]) -> str:
    """The name, which none of ``others`` has in whatever case. Raises Refused, AlreadyExists."""
    if not name.strip():
        raise Refused(f"a {what} needs a name")
    if len(name) > MOST_CHARACTERS:
        raise Refused(f"the name of a {what} has at most {MOST_CHARACTERS} characters, not {len(name)}")
    if any(other.name.lower() == name.lower() for other in others):
        raise AlreadyExists(f"there is a {what} called {name!r} already; names differ in more than case")
    return name


_KEY = string.ascii_uppercase + string.digits
MOST_OF_KEY = 5


def _key(key: str | None, name: str, others: Iterable[stored.Project]) -> str:
    """``key`` in capitals; where it is None or "", one made of the name. Raises Refused, AlreadyExists."""
    keys = {other.key for other in others}
    if key:
        key = key.upper()
        if len(key) > MOST_OF_KEY or not set(key) <= set(_KEY):
            raise Refused(f"a project's key has 1 to {MOST_OF_KEY} letters and digits, not {key!r}")
        if key in keys:
            raise AlreadyExists(f"there is a project with the key {key} already")
        return key
    begin = "".join(letter for letter in name.upper() if letter in _KEY)[:3]
    while True:
        candidate = begin + "".join(secrets.choice(_KEY) for _ in range(MOST_OF_KEY - len(begin)))
        if candidate not in keys:
            return candidate


def _set(row: stored.Workspace, request: WorkspaceFields, pools: set[str]) -> stored.Workspace:
    """With the fields that the request gives, but for the name. Raises Refused, ConfigError."""
    pool = (
        request.default_compute_pool
        if request.default_compute_pool is not None
        else request.default_compute_resource_pool
    )
    aux_pool = request.default_aux_pool if request.default_aux_pool is not None else request.default_aux_resource_pool
    for name in filter(None, (pool, aux_pool)):
        if name not in pools:
            raise Refused(f"there is no resource pool {name!r}; there are: {', '.join(sorted(pools))}")
    storage = request.checkpoint_storage_config
    if storage:
        load_storage(dump({"checkpoint_storage": storage}), file="checkpointStorageConfig")
    agent = request.agent_user_group
    return replace(
        row,
        pool=row.pool if pool is None else pool,
        aux_pool=row.aux_pool if aux_pool is None else aux_pool,
        checkpoint_storage=row.checkpoint_storage if storage is None else storage or None,
        agent=row.agent if agent is None else agent.model_dump(exclude_none=True) or None,
    )


def _archive_workspace(records: Records, workspace_id: int, archived: bool) -> None:
    with records.exclusive():
        row = _mutable(filing.workspace(records, workspace_id), "workspace")
        records.put(replace(row, archived=archived))


def _archive_project(records: Records, project_id: int, archived: bool) -> None:
    with records.exclusive():
        row = _mutable(filing.project(records, project_id), "project")
        if filing.workspace(records, row.workspace_id).archived:
            raise Refused(f"the workspace of project {row.name!r} is archived: unarchive that")
        records.put(replace(row, archived=archived))


def _with_notes(records: Records, project_id: int, change: Callable[[list[Note]], list[Note]]) -> Notes:
    with records.exclusive():
        row = filing.project(records, project_id)
        notes = change([Note(**note) for note in row.notes])
        records.put(replace(row, notes=[note.model_dump() for note in notes]))
    return Notes(notes=notes)
