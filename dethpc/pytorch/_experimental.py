"""Switches of the context that Determined calls experimental."""

from __future__ import annotations

import logging
from typing import Any

from dethpc.pytorch import _amp

logger = logging.getLogger("dethpc.pytorch")


class PyTorchExperimentalContext:
    """``context.experimental``."""

    def __init__(self, parent: Any) -> None:
        self._parent = parent
        self._auto_amp = False
        self._auto_to_device = True

    def use_amp(self) -> None:
        """Automatic mixed precision with nothing else to do: models run under autocast, losses are scaled, gradients unscaled
        before they are clipped. Call it before ``wrap_model``, and not together with ``wrap_scaler``. It is what
        ``optimizations.mixed_precision: O1`` does."""
        if not self._auto_amp:
            self._parent.wrap_scaler(_amp.grad_scaler(self._parent.device))
            self._auto_amp = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow any ``torch.utils.data.DataLoader``. Sharding, shuffling and resuming are up to you then; the classes in
        ``determined.pytorch.samplers`` help."""
        self._parent._data_repro_checks_disabled = True
        logger.info("data loaders of any kind are allowed: sharding and resuming are up to the training code")

    def disable_auto_to_device(self) -> None:
        """Do not move batches to the device; ``context.to_device()`` does it where you want it."""
        self._auto_to_device = False
