"""An older name of ``determined.experimental.trial``."""

from __future__ import annotations

from dethpc.experimental._order import OrderBy
from dethpc.experimental.trial import (
    LogLevel,
    Trial,
    TrialOrderBy,
    TrialReference,
    TrialSortBy,
    TrialState,
)

__all__ = [
    "OrderBy",
    "LogLevel",
    "Trial",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
    "TrialState",
]
