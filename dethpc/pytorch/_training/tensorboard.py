"""Metrics in TensorBoard's files."""

from __future__ import annotations

import numbers
from typing import Any, Dict, List


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
