"""The Python SDK (``client``), and the Core API for scripts outside the cluster (``core_v2``)."""

from __future__ import annotations

from dethpc.experimental import checkpoint, client, metrics
from dethpc.experimental._determined import Determined
from dethpc.experimental._one_batch import test_one_batch
from dethpc.experimental._order import OrderBy
from dethpc.experimental.checkpoint import Checkpoint
from dethpc.experimental.experiment import Experiment, ExperimentReference
from dethpc.experimental.model import Model, ModelOrderBy, ModelSortBy, ModelVersion
from dethpc.experimental.trial import Trial, TrialOrderBy, TrialReference, TrialSortBy
from dethpc.experimental.workspace import Project

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
    "Trial",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
    "checkpoint",
    "client",
    "metrics",
    "test_one_batch",
]
