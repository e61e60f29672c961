"""Records of any kind."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Select, bindparam

from dethpc.domain.records import KEYS
from dethpc.errors import NotFound
from dethpc.state import rows

R = TypeVar("R")


def get(connection: Connection, kind: type[R], /, *key: Any) -> R:
    """Raises: NotFound."""
    matches = find(connection, kind, **dict(zip(KEYS[kind], key)))
    if not matches:
        raise NotFound(f"{kind.__name__.lower()} {' '.join(map(str, key))} not found")
    return matches[0]


def find(connection: Connection, kind: type[R], /, **fields: Any) -> list[R]:
    """Those whose fields have these values, by key."""
    return [kind(*row) for row in connection.execute(_with(cast(Any, kind), *fields), fields)]


@cache
def _with(kind: type[Any], *names: str) -> Select[Any]:
    """Made once: making it takes several times as long as running it."""
    table = rows.table(kind)
    return rows.query(kind, *(table.c[name] == bindparam(name) for name in names)).order_by(*table.primary_key.columns)
