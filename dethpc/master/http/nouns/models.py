"""Routes of the model registry: models, and the checkpoints that are registered as their versions."""

from __future__ import annotations

import re
import time as clock
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.domain import records as stored
from dethpc.domain.records import UNCATEGORIZED, User
from dethpc.domain.roles import Role
from dethpc.domain.states import CheckpointState
from dethpc.domain.text import names
from dethpc.errors import NotFound, Refused
from dethpc.master.durable.records import RecordReader, Records
from dethpc.master.experiments import filing
from dethpc.master.http.access import (
    Editor,
    EditorSomewhere,
    Reading,
    Sorting,
    TheOrder,
    ThePage,
    TheRecords,
    TheStore,
    Viewer,
    ViewerSomewhere,
    VisibleRecords,
)
from dethpc.master.http.models import Given, Pagination, Plain, Shallow, UserText, Wire, time
from dethpc.master.http.nouns.checkpoints import Checkpoint, listed
from dethpc.master.http.nouns.workspaces import Filter, must_differ
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import records as stored_queries
from dethpc.state.queries.models import list_versions, numbers_of_versions


class Model(Wire):
    id: int
    name: UserText
    description: UserText
    metadata: Plain
    creation_time: str
    last_updated_time: str
    num_versions: int
    labels: list[UserText]
    username: str
    user_id: int
    workspace_id: int
    archived: bool
    notes: UserText


class ModelVersion(Wire):
    id: int
    version: int
    model: Model
    checkpoint: Checkpoint
    creation_time: str
    last_updated_time: str
    name: UserText
    comment: UserText
    notes: UserText
    labels: list[UserText]
    metadata: Plain
    username: str
    user_id: int


class ModelAnswer(Wire):
    model: Model


class Models(Wire):
    models: list[Model]
    pagination: Pagination


class VersionAnswer(Wire):
    model_version: ModelVersion


class Versions(Wire):
    model: Model
    model_versions: list[ModelVersion]
    pagination: Pagination


class ModelLabels(Wire):
    labels: list[UserText]


Metadata = Annotated[dict[str, Any], Shallow]


class ModelFields(Wire):
    """What may be set; None: as it is."""

    name: Given | None = None
    description: Given | None = None
    metadata: Metadata | None = None
    labels: list[Given] | None = None
    notes: Given | None = None
    workspace_id: int | None = None
    workspace_name: str | None = None


class VersionFields(Wire):
    """What may be set; None: as it is."""

    name: Given | None = None
    comment: Given | None = None
    metadata: Metadata | None = None
    labels: list[Given] | None = None
    notes: Given | None = None


class NewVersion(VersionFields):
    checkpoint_uuid: str


class ModelMove(Wire):
    destination_workspace_id: int


router = new_router(prefix="/api/v1", tags=["models"])

_SORTED_BY: dict[str, Callable[[Model], Any]] = {
    "id": lambda model: model.id,
    "name": lambda model: model.name.lower(),
    "description": lambda model: model.description.lower(),
    "creation_time": lambda model: model.creation_time,
    "last_updated_time": lambda model: model.last_updated_time,
    "num_versions": lambda model: model.num_versions,
    "workspace": lambda model: model.workspace_id,
}


class ModelFilter:
    """Which models beside those that ``Filter`` finds. ``description``: a part of it; a model must have all ``labels``."""

    def __init__(
        self,
        id: int | None = None,
        description: str = "",
        labels: Annotated[tuple[str, ...], Query()] = (),
        workspace_ids: Annotated[tuple[int, ...], Query(alias="workspaceIds")] = (),
        workspace_names: Annotated[tuple[str, ...], Query(alias="workspaceNames")] = (),
    ) -> None:
        self._id, self._description, self._labels = id, description.lower(), set(labels)
        self._workspace_ids, self._workspace_names = set(workspace_ids), workspace_names

    def within(self, spaces: Sequence[stored.Workspace]) -> None:
        """``spaces``: all that there are, for those that are named."""
        named = {space.id for space in spaces if space.name in self._workspace_names}
        self._workspace_ids |= named or {0} if self._workspace_names else set()

    def matches(self, model: Model) -> bool:
        return (
            self._id in (None, model.id)
            and self._description in model.description.lower()
            and self._labels <= set(model.labels)
            and (not self._workspace_ids or model.workspace_id in self._workspace_ids)
        )


@router.get("/models")
def models(
    connection: Reading,
    who: ViewerSomewhere,
    query: Annotated[Filter, Depends()],
    chosen: Annotated[ModelFilter, Depends()],
    paging: ThePage,
) -> Models:
    chosen.within(stored_queries.find(connection, stored.Workspace, deleted=False))
    everything = _View(connection).models()
    rows = query.sorted(
        [model for model in everything if query.matches(model, model.username) and chosen.matches(model)], _SORTED_BY
    )
    items, pagination = paging.of(rows)
    return Models(models=items, pagination=pagination)


@router.post("/models")
def create_model(
    request: ModelFields, records: TheRecords, visible: VisibleRecords, who: EditorSomewhere
) -> ModelAnswer:
    with records.exclusive():
        names.check_fields("model", _texts(request))
        now, workspace_id = clock.time(), _workspace(visible, request) or UNCATEGORIZED
        who.must_be(Role.EDITOR, workspace_id)
        row = records.add(
            stored.Model,
            name=_name(request.name or "", records.find(stored.Model, deleted=False)),
            user_id=who.user_id,
            created_at=now,
            updated_at=now,
            description=request.description or "",
            labels=request.labels or [],
            metadata=request.metadata or {},
            notes=request.notes or "",
            workspace_id=workspace_id,
        )
    return _answer(records, row.id)


@router.get("/model/labels")
def model_labels(
    connection: Reading, who: ViewerSomewhere, workspace_id: Annotated[int | None, Query(alias="workspaceId")] = None
) -> ModelLabels:
    """Labels of models, the most popular first."""
    counts = Counter(
        label
        for row in stored_queries.find(connection, stored.Model, deleted=False)
        if workspace_id in (None, 0, row.workspace_id)
        for label in row.labels
    )
    return ModelLabels(labels=sorted(counts, key=lambda label: (-counts[label], label)))


@router.get("/models/{model_name}")
def model(model_name: str, records: TheRecords, who: Viewer) -> ModelAnswer:
    """By name or id, as everywhere below."""
    return _answer(records, _model(records, model_name).id)


@router.patch("/models/{model_name}")
def change_model(
    model_name: str, request: ModelFields, records: TheRecords, visible: VisibleRecords, who: Editor
) -> ModelAnswer:
    with records.exclusive():
        row = _open(records, model_name)
        fields = request.model_dump(include={"description", "metadata", "labels", "notes"}, exclude_none=True)
        names.check_fields("model", _texts(request), row)
        workspace_id = _workspace(visible, request) or row.workspace_id
        who.must_be(Role.EDITOR, workspace_id)
        changed = replace(row, **fields, workspace_id=workspace_id, updated_at=clock.time())
        if request.name is not None and request.name != row.name:
            others = [other for other in records.find(stored.Model, deleted=False) if other.id != row.id]
            changed.name = _name(request.name, others)
            for version in records.find(stored.ModelVersion, model=row.name):
                records.put(replace(version, model=changed.name))
                records.drop(version)
        records.put(changed)
    return _answer(records, row.id)


@router.delete("/models/{model_name}")
def delete_model(model_name: str, records: TheRecords, who: Editor) -> dict[str, Any]:
    """With its versions; their checkpoints stay, and may be deleted then."""
    with records.exclusive():
        row = _model(records, model_name)
        for version in records.find(stored.ModelVersion, model=row.name):
            records.drop(version)
        records.put(replace(row, deleted=True))
    return {}


@router.post("/models/{model_name}/archive")
def archive_model(model_name: str, records: TheRecords, who: Editor) -> dict[str, Any]:
    """It takes no new versions and no changes until it is unarchived."""
    _archive(records, model_name, True)
    return {}


@router.post("/models/{model_name}/unarchive")
def unarchive_model(model_name: str, records: TheRecords, who: Editor) -> dict[str, Any]:
    _archive(records, model_name, False)
    return {}


@router.post("/models/{model_name}/move")
def move_model(
    model_name: str, request: ModelMove, records: TheRecords, visible: VisibleRecords, who: Editor
) -> dict[str, Any]:
    """To another workspace."""
    with records.exclusive():
        row, space = _model(records, model_name), filing.open_workspace(visible, request.destination_workspace_id)
        who.must_be(Role.EDITOR, space.id)
        records.put(replace(row, workspace_id=space.id, updated_at=clock.time()))
    return {}


# --- versions


@router.get("/models/{model_name}/versions")
def versions(
    model_name: str,
    records: TheRecords,
    connection: Reading,
    who: Viewer,
    sorting: TheOrder,
    paging: ThePage,
) -> Versions:
    """The newest first, where nothing else is asked for."""
    row = _model(records, model_name)
    order = Sorting(sorting.sort_by, sorting.order_by or "ORDER_BY_DESC").order("version")
    rows, total, begin = list_versions(connection, row.name, order, paging.page)
    view = _View(connection)
    return Versions(
        model=view.model(row),
        model_versions=view.versions(row, rows),
        pagination=paging.pagination(total, begin, len(rows)),
    )


@router.post("/models/{model_name}/versions")
def register_version(
    model_name: str, request: NewVersion, records: TheRecords, store: TheStore, who: Editor
) -> VersionAnswer:
    """A checkpoint that is whole; its files stay for as long as it is registered."""
    with records.exclusive():
        row = _open(records, model_name)
        with store.read() as connection:
            checkpoint = queries.checkpoint(connection, request.checkpoint_uuid)
        if checkpoint.decided is not CheckpointState.COMPLETED:
            state = checkpoint.decided.value
            raise Refused(f"checkpoint {checkpoint.uuid} is {state}: only one that is COMPLETED can be registered")
        names.check_fields("version of a model", _given(request))
        now = clock.time()
        row = replace(row, versions=row.versions + 1, updated_at=now)
        version = stored.ModelVersion(row.name, row.versions, checkpoint.uuid, now, user_id=who.user_id, updated_at=now)
        records.put(row)
        records.put(replace(version, **_given(request)))
    return _version_answer(records, row, version.number)


@router.get("/models/{model_name}/versions/{number}")
def version(model_name: str, number: int, visible: VisibleRecords, who: Viewer) -> VersionAnswer:
    return _version_answer(visible, _model(visible, model_name), number)


@router.patch("/models/{model_name}/versions/{number}")
def change_version(
    model_name: str, number: int, request: VersionFields, records: TheRecords, visible: VisibleRecords, who: Editor
) -> VersionAnswer:
    with records.exclusive():
        row = _model(records, model_name)
        _version_answer(visible, row, number)
        old = _version(records, row, number)
        names.check_fields("version of a model", _given(request), old)
        records.put(replace(old, **_given(request), updated_at=clock.time()))
    return _version_answer(visible, row, number)


@router.delete("/models/{model_name}/versions/{number}")
def delete_version(model_name: str, number: int, records: TheRecords, who: Editor) -> dict[str, Any]:
    """Its checkpoint stays, and may be deleted then."""
    with records.exclusive():
        row = _model(records, model_name)
        records.drop(_version(records, row, number))
        records.put(replace(row, updated_at=clock.time()))
    return {}


# --- parts of them


def _model(records: RecordReader, name: str) -> stored.Model:
    """By name or id. Raises NotFound."""
    fields: dict[str, Any] = {"id": int(name)} if re.fullmatch(r"[0-9]{1,18}", name) else {"name": name}
    for row in records.find(stored.Model, **fields, deleted=False):
        return row
    all_names = [row.name for row in records.find(stored.Model, deleted=False)]
    raise NotFound(f"model {name} not found{filing.others(name, all_names)}")


def _version(records: RecordReader, row: stored.Model, number: int) -> stored.ModelVersion:
    """Raises NotFound."""
    for version in records.find(stored.ModelVersion, model=row.name, number=number):
        return version
    raise NotFound(f"model {row.name} has no version {number}")


def model_and_version(records: RecordReader, name: str, number: int) -> tuple[stored.Model, stored.ModelVersion]:
    """Raises NotFound."""
    row = _model(records, name)
    return row, _version(records, row, number)


class _View:
    """What answers about models show, read at one instant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._usernames = {user.id: user.username for user in stored_queries.find(connection, User)}
        self._numbers = numbers_of_versions(connection)

    def models(self) -> list[Model]:
        return [self.model(row) for row in stored_queries.find(self._connection, stored.Model, deleted=False)]

    def model(self, row: stored.Model) -> Model:
        return Model(
            id=row.id,
            name=row.name,
            description=row.description,
            metadata=row.metadata,
            creation_time=time(row.created_at),
            last_updated_time=time(row.updated_at),
            num_versions=self._numbers.get(row.name, 0),
            labels=row.labels,
            username=self._usernames.get(row.user_id, ""),
            user_id=row.user_id,
            workspace_id=row.workspace_id,
            archived=row.archived,
            notes=row.notes,
        )

    def versions(self, row: stored.Model, rows: Sequence[stored.ModelVersion]) -> list[ModelVersion]:
        """Those whose checkpoints are known here."""
        facts = queries.checkpoints_by_id(self._connection, sorted({version.checkpoint for version in rows}))
        origins = queries.checkpoint_origins(self._connection, facts)
        checkpoints = {checkpoint.uuid: checkpoint for checkpoint in listed(facts, origins)}
        model = self.model(row)
        return [
            ModelVersion(
                id=row.id * 1_000_000 + version.number,
                version=version.number,
                model=model,
                checkpoint=checkpoints[version.checkpoint],
                creation_time=time(version.created_at),
                last_updated_time=time(version.updated_at),
                name=version.name,
                comment=version.comment,
                notes=version.notes,
                labels=version.labels,
                metadata=version.metadata,
                username=self._usernames.get(version.user_id, ""),
                user_id=version.user_id,
            )
            for version in rows
            if version.checkpoint in checkpoints
        ]


def _answer(records: Records, model_id: int) -> ModelAnswer:
    with records.reading() as connection:
        return ModelAnswer(model=_View(connection).model(stored_queries.get(connection, stored.Model, model_id)))


def _version_answer(records: RecordReader, row: stored.Model, number: int) -> VersionAnswer:
    """As ``records`` show it. Raises NotFound."""
    row, version = records.get(stored.Model, row.id), _version(records, row, number)
    with records.reading() as connection:
        if not (items := _View(connection).versions(row, [version])):
            raise NotFound(f"checkpoint {version.checkpoint} of version {number} of model {row.name} not found")
    return VersionAnswer(model_version=items[0])


def _open(records: RecordReader, name: str) -> stored.Model:
    """One that takes changes and versions. Raises NotFound; Refused for an archived one."""
    row = _model(records, name)
    filing.open_workspace(records, row.workspace_id)
    if row.archived:
        raise Refused(f"model {row.name!r} is archived: unarchive it before you change it or register versions")
    return row


def _name(name: str, others: Sequence[stored.Model]) -> str:
    """Raises Refused, AlreadyExists."""
    names.check_handle("model", name)
    if "/" in name or "\\" in name:
        raise Refused("the name of a model cannot contain a slash: it is a part of addresses")
    if "  " in name:
        raise Refused("the name of a model cannot contain two blanks in a row")
    must_differ("model", name, others)
    return name


def _workspace(records: RecordReader, request: ModelFields) -> int | None:
    """The workspace that the request names, None where it names none. Raises NotFound; Refused for an archived one."""
    id = request.workspace_id
    if request.workspace_name:
        id = filing.workspace_by_name(records, request.workspace_name).id
    return filing.open_workspace(records, id).id if id else None


def _texts(request: ModelFields) -> dict[str, Any]:
    return request.model_dump(include={"description", "labels", "notes"}, exclude_none=True)


def _given(request: VersionFields) -> dict[str, Any]:
    return request.model_dump(include={"name", "comment", "metadata", "labels", "notes"}, exclude_none=True)


def _archive(records: Records, model_name: str, archived: bool) -> None:
    with records.exclusive():
        records.put(replace(_model(records, model_name), archived=archived, updated_at=clock.time()))
