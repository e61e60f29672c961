"""An older name of ``determined.experimental._determined``."""

from __future__ import annotations

from dethpc.experimental._determined import (
    Determined,
)
from dethpc.experimental._order import OrderBy

__all__ = [
    "OrderBy",
    "Determined",
]
