"""Hooks around the training."""

from __future__ import annotations

from typing import Any, Dict, List, Optional


class PyTorchCallback:
    """Override what you need, and return the callbacks from ``build_callbacks()``.

    With several slots each of them has a callback of its own and calls it; ``on_checkpoint_end`` and
    ``on_checkpoint_write_end`` of a PyTorchTrial are called on the chief alone. A callback that keeps state must say so in
    ``state_dict()`` and ``load_state_dict()``, or it starts from scratch when the training goes on from a checkpoint.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: Optional[str]) -> None:
        """Before the data loaders are built. ``first_batch_idx``: the batch at which the training begins, or goes on.
        ``checkpoint_uuid``: the checkpoint that is about to be loaded."""

    def on_trial_shutdown(self) -> None:
        """Before the process leaves; the trial may be finished, or stopped to go on later. Not when it is killed."""

    def on_training_start(self) -> None:
        """Once the checkpoint is loaded, before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Before the first batch of an epoch."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """After the last batch of an epoch."""

    def on_training_workload_end(self, avg_metrics: Dict[str, Any], batch_metrics: Any) -> None:
        """After training metrics were reported: their averages, and those of the single batches."""

    def on_validation_start(self) -> None:
        """Before a validation."""

    def on_validation_epoch_start(self) -> None:
        """Before the first batch of a validation by ``evaluate_batch()``."""

    def on_validation_epoch_end(self, outputs: List[Any]) -> None:
        """After the last batch of a validation by ``evaluate_batch()``: what it returned on this slot, batch by batch."""

    def on_validation_end(self, metrics: Dict[str, Any]) -> None:
        """After a validation, before its metrics are reported."""

    def on_checkpoint_load_start(self, checkpoint: Dict[str, Any]) -> None:
        """Before ``checkpoint`` is loaded into models, optimizers and the rest; it may be changed."""

    def on_checkpoint_save_start(self, checkpoint: Dict[str, Any]) -> None:
        """Before ``checkpoint`` is written; it may be added to."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Deprecated: use ``on_checkpoint_write_end``."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """After the files of a checkpoint were written, before it is published; files may be added."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """After a checkpoint was published. The training waits for that where a callback has this method; else publishing goes on
        beside it."""

    def state_dict(self) -> Dict[str, Any]:
        """The state to keep in checkpoints; it is pickled."""
        return {}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take up the state from a checkpoint."""
