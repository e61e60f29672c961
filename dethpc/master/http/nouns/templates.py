"""Routes of templates of configurations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query

from dethpc.domain import records as stored
from dethpc.domain.records import UNCATEGORIZED
from dethpc.domain.roles import Role
from dethpc.errors import Refused
from dethpc.master.experiments import templates
from dethpc.master.http.access import (
    Editor,
    EditorSomewhere,
    Reading,
    TheOrder,
    ThePage,
    TheRecords,
    Viewer,
    ViewerSomewhere,
    VisibleRecords,
)
from dethpc.master.http.models import Given, MaskedConfig, Pagination, Shallow, UserText, Wire
from dethpc.master.http.router import new_router
from dethpc.state.queries import records as queries


class Template(Wire):
    name: UserText
    config: MaskedConfig
    workspace_id: int

    @classmethod
    def of(cls, row: stored.Template) -> Template:
        return cls(name=row.name, config=row.config, workspace_id=row.workspace_id)


class TemplateAnswer(Wire):
    template: Template


class Templates(Wire):
    templates: list[Template]
    pagination: Pagination


class TemplateFields(Wire):
    """The name is that of the path. ``workspace_id`` 0: Uncategorized, or where the template is already."""

    config: Annotated[dict[str, Any], Shallow] = {}
    workspace_id: int = 0


class Renaming(Wire):
    old_name: Given
    new_name: Given


router = new_router(prefix="/api/v1", tags=["templates"])


@router.get("/templates")
def list_templates(
    connection: Reading,
    who: ViewerSomewhere,
    sorting: TheOrder,
    paging: ThePage,
    name: str = "",
    workspace_ids: Annotated[tuple[int, ...], Query(alias="workspaceIds")] = (),
) -> Templates:
    """Those whose name contains ``name``, in whatever case, by name."""
    by = sorting.order(unsorted="name")
    if by.key != "name":
        raise Refused(f"cannot sort by {by.key}, only by name")
    rows = [
        row
        for row in queries.find(connection, stored.Template)
        if name.lower() in row.name.lower() and (not workspace_ids or row.workspace_id in workspace_ids)
    ]
    items, pagination = paging.of(sorted(rows, key=lambda row: row.name, reverse=by.descending))
    return Templates(templates=[Template.of(row) for row in items], pagination=pagination)


@router.get("/templates/{name}")
def get_template(name: str, records: TheRecords, who: Viewer) -> TemplateAnswer:
    return TemplateAnswer(template=Template.of(templates.get(records, name)))


@router.post("/templates/{name}")
def create_template(name: str, request: TemplateFields, records: TheRecords, who: EditorSomewhere) -> TemplateAnswer:
    who.must_be(Role.EDITOR, request.workspace_id or UNCATEGORIZED)
    row = templates.create(records, name, request.config, request.workspace_id)
    return TemplateAnswer(template=Template.of(row))


@router.put("/templates/{name}")
def set_template(name: str, request: TemplateFields, records: TheRecords, who: EditorSomewhere) -> TemplateAnswer:
    """Create it, or put this in the place of what it was."""
    with records.exclusive():
        before = records.find(stored.Template, name=name)
        for workspace_id in {request.workspace_id, *(row.workspace_id for row in before)} - {0} or {UNCATEGORIZED}:
            who.must_be(Role.EDITOR, workspace_id)
        put = templates.change if before else templates.create
        row = put(records, name, request.config, request.workspace_id)
    return TemplateAnswer(template=Template.of(row))


@router.patch("/templates/{name}")
def change_template(
    name: str, config: Annotated[dict[str, Any], Body(), Shallow], records: TheRecords, who: Editor
) -> TemplateAnswer:
    """Put this configuration in the place of the one that it was."""
    return TemplateAnswer(template=Template.of(templates.change(records, name, config)))


@router.patch("/template/rename")
def rename_template(
    request: Renaming, records: TheRecords, visible: VisibleRecords, who: EditorSomewhere
) -> TemplateAnswer:
    who.must_be(Role.EDITOR, templates.get(visible, request.old_name).workspace_id)
    return TemplateAnswer(template=Template.of(templates.rename(records, request.old_name, request.new_name)))


@router.delete("/templates/{name}")
def delete_template(name: str, records: TheRecords, who: Editor) -> dict[str, Any]:
    """Experiments that were created over it stay as they are."""
    with records.exclusive():
        records.drop(templates.get(records, name))
    return {}
