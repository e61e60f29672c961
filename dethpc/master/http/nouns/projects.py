"""Routes of projects, and of moves between workspaces."""

from __future__ import annotations

import secrets
import string
import time as clock
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends

from dethpc.domain import records as stored
from dethpc.domain.roles import Role
from dethpc.domain.states import State
from dethpc.domain.text import names
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import AlreadyExists, NotFound, Refused
from dethpc.master.durable.ledger import Plan
from dethpc.master.durable.records import Records
from dethpc.master.experiments import config_policies, filing
from dethpc.master.experiments.control import Control
from dethpc.master.http.access import (
    Editor,
    Limit,
    Reading,
    TheControl,
    ThePage,
    TheRecords,
    Viewer,
    ViewerSomewhere,
)
from dethpc.master.http.models import Given, Pagination, Wire, paged
from dethpc.master.http.nouns.workspaces import (
    Deleted,
    Filter,
    Note,
    Project,
    View,
    must_differ,
    mutable,
    name_of,
)
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import ExperimentFilter, Order, Page


class ProjectAnswer(Wire):
    project: Project


class Projects(Wire):
    projects: list[Project]
    pagination: Pagination


class ActiveProjects(Wire):
    projects: list[Project]


class Notes(Wire):
    notes: list[Note]


class ProjectFields(Wire):
    name: Given | None = None
    key: Given | None = None
    description: Given | None = None


class NewNotes(Wire):
    notes: list[Note] = []


class ProjectMove(Wire):
    destination_workspace_id: int


router = new_router(prefix="/api/v1", tags=["projects"])


@router.get("/workspaces/{workspace_id}/projects")
def projects(
    workspace_id: int,
    connection: Reading,
    who: ViewerSomewhere,
    query: Annotated[Filter, Depends()],
    paging: ThePage,
) -> Projects:
    """Of every workspace when its id is 0."""
    view = View(connection)
    if workspace_id:
        view.workspace(workspace_id)
    rows = [
        row
        for row in view.projects.values()
        if workspace_id in (0, row.workspace_id) and query.matches(row, view.username(row))
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
    items, pagination = paging.of(query.sorted(rows, keys))
    return Projects(projects=view.project_answers(items), pagination=pagination)


@router.post("/workspaces/{workspace_id}/projects")
def create_project(workspace_id: int, request: ProjectFields, records: TheRecords, who: Editor) -> ProjectAnswer:
    with records.exclusive():
        names.check_fields("project", {"description": request.description or ""})
        filing.open_workspace(records, workspace_id)
        all_projects = records.find(stored.Project, deleted=False)
        row = records.add(
            stored.Project,
            workspace_id=workspace_id,
            name=name_of(
                "project", request.name or "", [one for one in all_projects if one.workspace_id == workspace_id]
            ),
            key=_key(request.key, request.name or "", all_projects),
            user_id=who.user_id,
            created_at=clock.time(),
            description=request.description or "",
        )
    return _project_answer(records, row.id)


@router.get("/projects/{project_id}")
def project(project_id: int, records: TheRecords, who: Viewer) -> ProjectAnswer:
    return _project_answer(records, project_id)


@router.get("/projects/key/{key}")
def project_by_key(key: str, records: TheRecords, who: Viewer) -> ProjectAnswer:
    for row in records.find(stored.Project, deleted=False):
        if row.key == key.upper():
            return _project_answer(records, row.id)
    raise NotFound(f"project with key {key} not found")


@router.patch("/projects/{project_id}")
def change_project(project_id: int, request: ProjectFields, records: TheRecords, who: Editor) -> ProjectAnswer:
    with records.exclusive():
        row = mutable(filing.project(records, project_id), "project")
        _refuse_archived(records, row)
        others = [other for other in records.find(stored.Project, deleted=False) if other.id != row.id]
        if request.name is not None and request.name != row.name:
            there = [other for other in others if other.workspace_id == row.workspace_id]
            row = replace(row, name=name_of("project", request.name, there))
        if request.key is not None and request.key != row.key:
            row = replace(row, key=_key(request.key, row.name, others))
        if request.description is not None:
            names.check_fields("project", {"description": request.description}, row)
            row = replace(row, description=request.description)
        records.put(row)
    return _project_answer(records, project_id)


@router.delete("/projects/{project_id}")
def delete_project(project_id: int, records: TheRecords, control: TheControl, who: Editor) -> Deleted:
    """One that has no experiments, also none that is created or moved there at the same time."""

    def plan() -> Plan:
        row = mutable(filing.project(records, project_id), "project")
        if number := _project_answer(records, project_id).project.num_experiments:
            count = f"{number} experiment{'s' * (number > 1)}"
            where = "delete them, or move them to another project first"
            raise Refused(f"project {row.name!r} is not empty: it has {count}; {where}")
        return Plan([], [replace(row, deleted=True)])

    with records.exclusive():
        control.do_planned(plan)
        records.copy(stored.Project, [(project_id,)])
    return Deleted()


@router.post("/projects/{project_id}/archive")
def archive_project(project_id: int, records: TheRecords, who: Editor) -> dict[str, Any]:
    """It takes no experiments until it is unarchived."""
    _archive_project(records, project_id, True)
    return {}


@router.post("/projects/{project_id}/unarchive")
def unarchive_project(project_id: int, records: TheRecords, who: Editor) -> dict[str, Any]:
    _archive_project(records, project_id, False)
    return {}


@router.post("/projects/{project_id}/move")
def move_project(
    project_id: int, request: ProjectMove, records: TheRecords, control: TheControl, who: Editor
) -> dict[str, Any]:
    """To another workspace, with its experiments. Raises Refused where its policies do not allow one that has not ended."""
    who.must_be(Role.EDITOR, request.destination_workspace_id)

    def plan() -> Plan:
        row = mutable(filing.project(records, project_id), "project")
        space = filing.open_workspace(records, request.destination_workspace_id)
        _refuse_archived(records, row)
        if space.id == row.workspace_id:
            return Plan([])
        there = [one for one in records.find(stored.Project, deleted=False) if one.workspace_id == space.id]
        must_differ("project", row.name, there)
        return Plan(list(_bounds_there(records, control, row.id, space.id)), [replace(row, workspace_id=space.id)])

    with records.exclusive():
        control.do_planned(plan)
        records.copy(stored.Project, [(project_id,)])
    return {}


@router.post("/projects/{project_id}/notes")
def add_note(project_id: int, request: Note, records: TheRecords, who: Editor) -> Notes:
    return _with_notes(records, project_id, lambda notes: [*notes, request])


@router.put("/projects/{project_id}/notes")
def set_notes(project_id: int, request: NewNotes, records: TheRecords, who: Editor) -> Notes:
    return _with_notes(records, project_id, lambda notes: request.notes)


@router.get("/user/projects/activity")
def active_projects(connection: Reading, records: TheRecords, who: ViewerSomewhere, limit: Limit = 0) -> ActiveProjects:
    """Those in which an experiment was created last, or which the user has looked at last (``users/activity``), come first."""
    view = View(connection)
    active_at = view.started_at(list(view.projects))
    for visit in records.find(stored.ProjectVisit, user_id=who.user_id):
        if visit.project_id in active_at:
            active_at[visit.project_id] = max(active_at[visit.project_id], visit.at)
    rows = sorted(view.projects.values(), key=lambda row: (-active_at[row.id], row.id))
    items, _ = paged([row for row in rows if active_at[row.id]], 0, limit)
    return ActiveProjects(projects=view.project_answers(items))


# --- parts of them


def _project_answer(records: Records, project_id: int) -> ProjectAnswer:
    """Raises NotFound."""
    row = filing.project(records, project_id)
    with records.reading() as connection:
        return ProjectAnswer(project=View(connection).project_answers([row])[0])


def _refuse_archived(records: Records, row: stored.Project) -> None:
    if row.archived or filing.workspace(records, row.workspace_id).archived:
        raise Refused(f"project {row.name!r} is archived: unarchive it before you change it")


def _bounds_there(
    records: Records, control: Control, project_id: int, workspace_id: int
) -> Iterator[events.ChangeExperiment]:
    """What those experiments of the project get which the policies of the workspace bind. Raises Refused where they do not allow
    one."""
    policies = config_policies.policies_of(records, workspace_id)
    if not policies:
        return
    criteria = ExperimentFilter(project_id=project_id, states=frozenset({State.ACTIVE.value, State.PAUSED.value}))
    with records.reading() as connection:
        experiments, _, _ = queries.list_experiments(connection, criteria, Order("id"), Page(limit=None))
    for experiment in experiments:
        try:
            bounds = control.bounds_there(experiment, policies)
        except Refused as refusal:
            raise Refused(f"experiment {experiment.id}: {refusal}") from None
        if bounds:
            yield events.ChangeExperiment(experiment.id, ExperimentChanges(**bounds), clock.time())


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
            raise AlreadyExists(f"a project with the key {key} already exists")
        return key
    begin = "".join(letter for letter in name.upper() if letter in _KEY)[:3]
    while True:
        candidate = begin + "".join(secrets.choice(_KEY) for _ in range(MOST_OF_KEY - len(begin)))
        if candidate not in keys:
            return candidate


def _archive_project(records: Records, project_id: int, archived: bool) -> None:
    with records.exclusive():
        row = mutable(filing.project(records, project_id), "project")
        if filing.workspace(records, row.workspace_id).archived:
            raise Refused(f"the workspace of project {row.name!r} is archived: unarchive that")
        records.put(replace(row, archived=archived))


def _with_notes(records: Records, project_id: int, change: Callable[[list[Note]], list[Note]]) -> Notes:
    with records.exclusive():
        row = filing.project(records, project_id)
        there = [Note(**note) for note in row.notes]
        notes = change(there)
        for note in notes:
            if note not in there:
                names.check_fields("note", {"name": note.name, "notes": note.contents})
        records.put(replace(row, notes=[note.model_dump() for note in notes]))
    return Notes(notes=notes)
