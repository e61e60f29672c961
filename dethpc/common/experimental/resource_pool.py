"""An older name of ``determined.experimental.client.ResourcePool``."""

from __future__ import annotations

from dethpc.experimental.workspace import (
    ResourcePool,
)

__all__ = [
    "ResourcePool",
]
