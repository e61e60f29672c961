"""Records of any kind."""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import Connection

from dethpc.domain.records import KEYS
from dethpc.errors import NotFound
from dethpc.state.rows import find as find

R = TypeVar("R")


def get(connection: Connection, kind: type[R], /, *key: Any, **fields: Any) -> R:
    """The one with this key, and with these values. Raises: NotFound."""
    matches = find(connection, kind, **dict(zip(KEYS[kind], key)), **fields)
    if not matches:
        raise NotFound(f"{kind.__name__.lower()} {' '.join(map(str, key))} not found")
    return matches[0]
