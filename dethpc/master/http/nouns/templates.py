"""Routes of config templates, which are not supported yet: the list is empty."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from dethpc.errors import NotFound
from dethpc.master.http.access import Limit, Offset, OrderBy, Owner, SortBy
from dethpc.master.http.models import Pagination, Wire
from dethpc.master.http.router import new_router


class Templates(Wire):
    templates: list[str] = []
    pagination: Pagination


router = new_router(prefix="/api/v1/templates", tags=["templates"])


@router.get("")
def templates(
    who: Owner,
    name: str = "",
    workspace_ids: Annotated[tuple[int, ...], Query(alias="workspaceIds")] = (),
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    limit: Limit = 0,
    offset: Offset = 0,
) -> Templates:
    return Templates(pagination=Pagination.of(0, 0, limit, 0))


@router.get("/{name}")
def template(name: str, who: Owner) -> None:
    raise NotFound(f"template {name} not found")
