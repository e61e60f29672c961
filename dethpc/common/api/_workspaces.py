"""Workspaces by name."""

from __future__ import annotations

from typing import Any

from dethpc.common.api import bindings, errors
from dethpc.common.api._session import BaseSession


def workspace_by_name(session: BaseSession, name: str) -> Any:
    """Raises NotFoundException."""
    rows = bindings.get_GetWorkspaces(session, nameCaseSensitive=name).workspaces
    if not rows:
        raise errors.NotFoundException(f"workspace {name!r} not found")
    return rows[0]
