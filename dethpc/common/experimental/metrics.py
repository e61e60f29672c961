"""An older name of ``determined.experimental.metrics``."""

from __future__ import annotations

from dethpc.experimental.metrics import (
    TrainingMetrics,
    TrialMetrics,
    ValidationMetrics,
)

__all__ = [
    "TrainingMetrics",
    "TrialMetrics",
    "ValidationMetrics",
]
