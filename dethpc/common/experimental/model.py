"""An older name of the model registry in ``determined.experimental.client``."""

from __future__ import annotations

from dethpc.experimental.model import (
    Model,
    ModelOrderBy,
    ModelSortBy,
    ModelVersion,
)

__all__ = [
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
]
