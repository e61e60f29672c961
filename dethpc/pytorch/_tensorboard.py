"""Metrics and profiles in TensorBoard's files."""

from __future__ import annotations

import numbers
import pathlib
from typing import Any, Dict, List

_TRACE = ".pt.trace.json"


def write_metrics(writer: Any, kind: str, steps: int, metrics: Dict[str, Any], batches: List[Dict[str, Any]]) -> None:
    """Write training metrics for each batch (those of reducers once), and validation metrics (``kind`` "val") as ``val_...``."""
    for n, batch in enumerate(batches):
        for name, value in batch.items():
            _write(writer, name, value, steps - len(batches) + n)
    written = {name for batch in batches for name in batch}
    for name, value in metrics.items():
        if name not in written:
            _write(writer, f"val_{name}" if kind == "val" and not name.startswith("val") else name, value, steps)


def _write(writer: Any, name: str, value: Any, step: int) -> None:
    if isinstance(value, numbers.Real) or (getattr(value, "ndim", None) == 0 and hasattr(value, "item")):
        writer.add_scalar(f"Determined/{name}", float(value), step)


def rank_aware(path: pathlib.Path, rank: int) -> pathlib.Path:
    """PyTorch's profiler names a file ``<host>_<pid>.<time>.pt.trace.json``: the rank goes to the worker's name."""
    name = path.name
    ending = next((e for e in (_TRACE, f"{_TRACE}.gz") if name.endswith(e)), None)
    if ending is None:
        return path
    worker, dot, rest = name.partition(".")
    return path.with_name(f"{worker}#{rank}{dot}{rest}")
