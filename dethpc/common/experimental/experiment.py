"""An older name of ``determined.experimental.experiment``."""

from __future__ import annotations

from dethpc.experimental._order import OrderBy
from dethpc.experimental.experiment import (
    Experiment,
    ExperimentOrderBy,
    ExperimentReference,
    ExperimentSortBy,
    ExperimentState,
)

__all__ = [
    "OrderBy",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentReference",
    "ExperimentSortBy",
    "ExperimentState",
]
