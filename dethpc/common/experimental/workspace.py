"""An older name of ``determined.experimental.client.Workspace``."""

from __future__ import annotations

from dethpc.experimental.workspace import (
    Workspace,
)

__all__ = [
    "Workspace",
]
