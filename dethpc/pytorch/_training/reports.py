"""Reports of the training loop to the master and TensorBoard."""

from __future__ import annotations

import logging
import numbers
import time
from typing import Any, Dict, List

from dethpc.pytorch._training.metrics import Metrics
from dethpc.pytorch._training.state import _TrialState
from dethpc.pytorch._trial_context import _TrialContext
from dethpc.tensorboard.util import get_rank_aware_path

logger = logging.getLogger("dethpc.pytorch")


UPLOAD_EVERY = 10.0
"""Seconds between two copies of the files for TensorBoard, at least; copying may take a hundredth of the time."""


class Reports:
    """``records_metric``: whether the search compares trials by the records they trained on."""

    def __init__(self, context: _TrialContext, records_metric: bool, *, chief: bool, on_cluster: bool) -> None:
        self._context, self._train = context, context._core.train
        self._records_metric, self._chief, self._on_cluster = records_metric, chief, on_cluster
        self._said = ""
        self._no_tensorboard = False
        self._upload_at = float("-inf")

    def say(self, status: str) -> None:
        """Tell the master what the trial is doing, once for each change."""
        if self._chief and self._on_cluster and status != self._said:
            self._train.set_status(status)
            self._said = status

    def with_time(self, state: _TrialState, metrics: Metrics) -> Metrics:
        """The metrics with how far the training is, by which a search compares trials."""
        time_metrics: Metrics = {"batches": state.batches_trained, "epochs": state.epochs_trained}
        if self._records_metric:
            time_metrics["records"] = state.batches_trained * (self._context._global_batch_size or 0)
        return {**time_metrics, **metrics}

    def write_tensorboard(self, kind: str, steps: int, metrics: Metrics, batches: List[Metrics]) -> None:
        """``kind``: "train" or "val"."""
        if not self._context.get_enable_tensorboard_logging() or self._no_tensorboard:
            return
        try:
            writer = self._context.get_tensorboard_writer()
        except ImportError as error:
            self._no_tensorboard = True
            logger.info("metrics are not written for TensorBoard: %s", error)
            return
        write_metrics(writer, kind, steps, metrics, batches)

    def upload_tensorboard(self, now: bool = False) -> None:
        if not self._on_cluster or not self._context.get_enable_tensorboard_logging():
            return
        began = time.monotonic()
        if not now and began < self._upload_at:
            return
        self._context._maybe_reset_tbd_writer()
        # Every worker's writer would name its file the same; profiles carry the rank in their names.
        chief = self._chief
        self._train.upload_tensorboard_files(lambda path: chief or "tfevents" not in path.name, get_rank_aware_path)
        ended = time.monotonic()
        self._upload_at = ended + max(UPLOAD_EVERY, 100 * (ended - began))


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
