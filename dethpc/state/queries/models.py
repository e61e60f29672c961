"""Versions of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from dethpc.domain.records import ModelVersion
from dethpc.state import rows
from dethpc.state.queries.page import Order, Page, sort_key

_version = rows.table(ModelVersion).c

_KEYS = {"version": _version.number, "creation_time": _version.created_at}


def numbers_of_versions(connection: Connection) -> dict[str, int]:
    """How many versions each model has that has any, by its name."""
    query = select(_version.model, func.count()).group_by(_version.model)
    return {row[0]: row[1] for row in connection.execute(query)}


def list_versions(connection: Connection, model: str, order: Order, page: Page) -> tuple[list[ModelVersion], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    own = _version.model == model
    total = connection.scalar(select(func.count()).select_from(rows.table(ModelVersion)).where(own)) or 0
    begin = page.begin(total)
    if page.limit == 0:
        return [], total, begin
    keys: Sequence[Any] = (sort_key(_KEYS, order), _version.number)
    by = [key.desc() if order.descending else key.asc() for key in keys]
    query = rows.query(ModelVersion, own).order_by(*by).offset(begin).limit(page.limit)
    return [ModelVersion(*row) for row in connection.execute(query)], total, begin
