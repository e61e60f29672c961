"""Logger that turns Lightning's logged values into reports of the trial."""

from __future__ import annotations

from typing import Any, Dict, Optional

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import logger as loggers

from dethpc import core

_GROUPS = {"train": "training", "validate": "validation", "test": "test"}


class DeterminedLogger(loggers.Logger):
    """Reports metrics: those of training as they are logged, those of a validation together at its end.

    :class:`DeterminedCallback` adds one to its Trainer. Alone it goes by the names, ``val...`` and ``test...``, as a logger does
    not know what is going on.
    """

    def __init__(self, core_context: core.Context) -> None:
        super().__init__()
        self._train = core_context.train
        self._chief = core_context.distributed.rank == 0
        self._info = core_context.info
        self._trainer: Optional[Trainer] = None
        self._validation: Dict[str, Any] = {}

    @property
    def name(self) -> str:
        return "determined"

    @property
    def version(self) -> str:
        return self._info.allocation_id if self._info is not None else "0"

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The trial's hyperparameters are known."""

    def log_metrics(self, metrics: Dict[str, Any], step: Optional[int] = None) -> None:
        metrics = {name: value for name, value in metrics.items() if name != "epoch"}
        if not self._chief or not metrics:
            return
        if self._trainer is None:
            self._report_by_name(metrics, step or 0)
            return
        group = _GROUPS.get(str(getattr(self._trainer.state.stage, "value", "")), "training")
        if group == "validation":
            self._validation.update(metrics)
        else:
            self._report(group, metrics)

    def _validated(self) -> None:
        """The validation is over: all that it has logged has come."""
        metrics, self._validation = self._validation, {}
        if metrics:
            self._report("validation", metrics)

    def _report(self, group: str, metrics: Dict[str, Any]) -> None:
        assert self._trainer is not None
        batches = batches_trained(self._trainer)
        time_metrics = {"batches": batches, "epochs": epochs_trained(self._trainer)}
        self._train.report_metrics(group, batches, {**time_metrics, **metrics})

    def _report_by_name(self, metrics: Dict[str, Any], step: int) -> None:
        groups: Dict[str, Dict[str, Any]] = {}
        for name, value in metrics.items():
            group = "validation" if name.startswith("val") else "test" if name.startswith("test") else "training"
            groups.setdefault(group, {})[name] = value
        for group, theirs in groups.items():
            self._train.report_metrics(group, step, theirs)


def batches_trained(trainer: Trainer) -> int:
    """In all, also before a stop."""
    return int(trainer.fit_loop.total_batch_idx) + 1


def epochs_trained(trainer: Trainer) -> float:
    """In all, with the fraction of the current one where its length is known."""
    begun, length = trainer.current_epoch, trainer.num_training_batches
    if trainer.state.fn != "fit" or not 0 < length < float("inf"):
        return int(begun)
    epochs = begun + (trainer.fit_loop.batch_idx + 1) / length
    return int(epochs) if epochs == int(epochs) else float(epochs)
