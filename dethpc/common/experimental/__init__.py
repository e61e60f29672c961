"""An older name of ``determined.experimental``."""

from __future__ import annotations

from dethpc.common.experimental import (
    checkpoint,
    determined,
    experiment,
    metrics,
    model,
    project,
    resource_pool,
    trial,
    user,
    workspace,
)
from dethpc.experimental import (
    Checkpoint,
    Determined,
    Experiment,
    ExperimentReference,
    Model,
    ModelOrderBy,
    ModelSortBy,
    ModelVersion,
    OrderBy,
    Project,
    Trial,
    TrialOrderBy,
    TrialReference,
    TrialSortBy,
)
from dethpc.experimental.metrics import TrainingMetrics, TrialMetrics, ValidationMetrics

__all__ = [
    "Checkpoint",
    "Determined",
    "Experiment",
    "ExperimentReference",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "Project",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
    "ValidationMetrics",
    "checkpoint",
    "determined",
    "experiment",
    "metrics",
    "model",
    "project",
    "resource_pool",
    "trial",
    "user",
    "workspace",
]
