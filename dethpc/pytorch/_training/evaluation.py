"""What a trial's ``evaluate_batch()`` and ``evaluate_full_dataset()`` return, checked and collected."""

from __future__ import annotations

from typing import Any, Iterable, List

from dethpc.pytorch._training import metrics as _metrics
from dethpc.pytorch._training.metrics import Metrics


def collect(evaluated: Iterable[Any], *, counts: bool, one: bool) -> List[Metrics]:
    """The metrics of each batch. ``counts``: False where this worker's part of the model has none; ``one``: the first batch
    is enough. Raises TypeError for what is no dict, ValueError where batches differ in their metrics."""
    batches: List[Metrics] = []
    for metrics in evaluated:
        if counts:
            checked(metrics, "batch")
            if batches and metrics.keys() != batches[0].keys():
                raise ValueError(f"evaluate_batch() returned metrics {list(metrics)} after {list(batches[0])}")
            batches.append(_metrics.snapshot(metrics))
        if one:
            break
    return _metrics.for_callbacks(_metrics.fetched(batches))


def checked(metrics: Any, by: str) -> Metrics:
    if not isinstance(metrics, dict):
        raise TypeError(f"evaluate_{by}() returns a dict, not a {type(metrics).__name__}")
    return metrics
