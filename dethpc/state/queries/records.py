"""Records of any kind."""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import Connection

from dethpc.domain.records import KEYS
from dethpc.errors import NotFound
from dethpc.state import rows

R = TypeVar("R")


def get(connection: Connection, kind: type[R], /, *key: Any) -> R:
    """Raises: NotFound."""
    found = find(connection, kind, **dict(zip(KEYS[kind], key)))
    if not found:
        raise NotFound(f"{kind.__name__.lower()} {' '.join(map(str, key))} not found")
    return found[0]


def find(connection: Connection, kind: type[R], /, **fields: Any) -> list[R]:
    """Those whose fields have these values, by key."""
    columns = rows.table(kind).c
    return rows.read(connection, kind, *(columns[name] == value for name, value in fields.items()))
