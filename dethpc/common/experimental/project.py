"""An older name of ``determined.experimental.client.Project``."""

from __future__ import annotations

from dethpc.experimental.workspace import (
    Project,
)

__all__ = [
    "Project",
]
