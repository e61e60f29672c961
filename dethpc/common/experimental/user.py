"""An older name of ``determined.experimental.user``."""

from __future__ import annotations

from dethpc.experimental.user import (
    User,
)

__all__ = [
    "User",
]
