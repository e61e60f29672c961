"""Metrics as numbers with Determined's tags: ``Determined/<metric>``, and of validations ``Determined/val_<metric>``."""

from __future__ import annotations

import abc
import numbers
import time
from typing import Any, Dict, List, Optional


class MetricWriter(abc.ABC):
    """A framework's writer."""

    @abc.abstractmethod
    def add_scalar(self, name: str, value: Any, step: int) -> None:
        """Write a number."""

    @abc.abstractmethod
    def reset(self) -> None:
        """End the file: what is written next begins another."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Bring to the file what has been written."""


class BatchMetricWriter:
    """Writes reports of metrics by a :class:`MetricWriter`; what is no number is left out."""

    def __init__(self, writer: MetricWriter) -> None:
        self.writer = writer
        self._flushed: Optional[int] = None  # the second

    def on_train_step_end(
        self, steps_completed: int, metrics: Dict[str, Any], batch_metrics: Optional[List[Dict[str, Any]]] = None
    ) -> None:
        """Training metrics: of each batch, and what only the report itself has."""
        self._begin()
        batches = batch_metrics or []
        for n, batch in enumerate(batches):
            self._write(batch, steps_completed - len(batches) + n)
        written = {name for batch in batches for name in batch}
        self._write({name: value for name, value in metrics.items() if name not in written}, steps_completed)
        self._end()

    def on_validation_step_end(self, steps_completed: int, metrics: Dict[str, Any]) -> None:
        self._begin()
        named = {name if name.startswith("val") else f"val_{name}": value for name, value in metrics.items()}
        self._write(named, steps_completed)
        self._end()

    def _write(self, metrics: Dict[str, Any], step: int) -> None:
        for name, value in metrics.items():
            if _is_number(value):
                self.writer.add_scalar(f"Determined/{name}", value, step)

    def _begin(self) -> None:
        """A file is named by the second in which it begins, so there is one in a second at most."""
        if self._flushed is not None and int(time.time()) > self._flushed:
            self.writer.reset()

    def _end(self) -> None:
        self.writer.flush()
        self._flushed = int(time.time())


def _is_number(value: Any) -> bool:
    if isinstance(value, numbers.Number):
        return True
    one = getattr(value, "size", None) == 1 or getattr(value, "ndim", None) == 0
    return one and hasattr(value, "dtype") and getattr(value.dtype, "kind", "f") in "biuf"
