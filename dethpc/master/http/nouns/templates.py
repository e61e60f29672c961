"""Routes of templates of configurations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query

from dethpc.domain import records as stored
from dethpc.errors import Refused
from dethpc.master.experiments import templates
from dethpc.master.http.access import Editor, Limit, Offset, OrderBy, SortBy, TheRecords, Viewer, order
from dethpc.master.http.models import Given, MaskedConfig, Pagination, Shallow, Told, Wire, paged
from dethpc.master.http.router import new_router


class Template(Wire):
    name: Told
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
    records: TheRecords,
    who: Viewer,
    name: str = "",
    workspace_ids: Annotated[tuple[int, ...], Query(alias="workspaceIds")] = (),
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    limit: Limit = 0,
    offset: Offset = 0,
) -> Templates:
    """Those whose name contains ``name``, in whatever case, by name."""
    by = order(sort_by, order_by, unsorted="name")
    if by.key != "name":
        raise Refused(f"cannot sort by {by.key}, only by name")
    rows = [
        row
        for row in records.find(stored.Template)
        if name.lower() in row.name.lower() and (not workspace_ids or row.workspace_id in workspace_ids)
    ]
    items, pagination = paged(sorted(rows, key=lambda row: row.name, reverse=by.descending), offset, limit)
    return Templates(templates=[Template.of(row) for row in items], pagination=pagination)


@router.get("/templates/{name}")
def get_template(name: str, records: TheRecords, who: Viewer) -> TemplateAnswer:
    return TemplateAnswer(template=Template.of(templates.get(records, name)))


@router.post("/templates/{name}")
def create_template(name: str, request: TemplateFields, records: TheRecords, who: Editor) -> TemplateAnswer:
    row = templates.create(records, name, request.config, request.workspace_id)
    return TemplateAnswer(template=Template.of(row))


@router.put("/templates/{name}")
def set_template(name: str, request: TemplateFields, records: TheRecords, who: Editor) -> TemplateAnswer:
    """Create it, or put this in the place of what it was."""
    with records.exclusive():
        put = templates.change if records.find(stored.Template, name=name) else templates.create
        row = put(records, name, request.config, request.workspace_id)
    return TemplateAnswer(template=Template.of(row))


@router.patch("/templates/{name}")
def change_template(
    name: str, config: Annotated[dict[str, Any], Body(), Shallow], records: TheRecords, who: Editor
) -> TemplateAnswer:
    """Put this configuration in the place of the one that it was."""
    return TemplateAnswer(template=Template.of(templates.change(records, name, config)))


@router.patch("/template/rename")
def rename_template(request: Renaming, records: TheRecords, who: Editor) -> TemplateAnswer:
    return TemplateAnswer(template=Template.of(templates.rename(records, request.old_name, request.new_name)))


@router.delete("/templates/{name}")
def delete_template(name: str, records: TheRecords, who: Editor) -> dict[str, Any]:
    """Experiments that were created over it stay as they are."""
    with records.exclusive():
        records.drop(templates.get(records, name))
    return {}
