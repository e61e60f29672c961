"""Switches of the context that Determined calls experimental."""

from __future__ import annotations

import logging
from typing import Any, Optional

from dethpc.data_layer import Caching, Decorator
from dethpc.pytorch import _amp, _cached
from dethpc.pytorch._cached import CachedDataset

logger = logging.getLogger("dethpc.pytorch")


class CachedDatasets:
    """What ``context.experimental`` of every kind of trial has: data sets that each node makes once."""

    def __init__(self, parent: Any) -> None:
        self._parent = parent
        self._caching: Optional[Caching[CachedDataset]] = None

    def cache_train_dataset(
        self,
        dataset_id: str,
        dataset_version: str,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
    ) -> Decorator[CachedDataset]:
        """Decorates a function that returns a dataset, map-style or iterable, or any iterable of records: the first trial on a node
        calls it and keeps the records there, and all others read what is kept. The caller gets a map-style dataset for
        ``determined.pytorch.DataLoader``. ::

            @context.experimental.cache_train_dataset("cifar10", "v1", shuffle=True)
            def train_set():
                return torchvision.datasets.CIFAR10("/data", transform=to_tensor)

            return pytorch.DataLoader(train_set(), batch_size=context.get_per_slot_batch_size())

        ``dataset_id`` and ``dataset_version`` name what is kept: change the version with the records. ``shuffle``: in an order that
        follows from the trial's seed, another one in each epoch unless ``skip_shuffle_at_epoch_end``. Raises, when the decorated
        function is called, DataLayerError, ImportError without the package lmdb, TypeError for what is no dataset.
        """
        return self._cache().train(dataset_id, dataset_version, shuffle, skip_shuffle_at_epoch_end)

    def cache_validation_dataset(
        self, dataset_id: str, dataset_version: str, shuffle: bool = False
    ) -> Decorator[CachedDataset]:
        """As ``cache_train_dataset``, for validation: in the same order each time."""
        return self._cache().validation(dataset_id, dataset_version, shuffle)

    def _cache(self) -> Caching[CachedDataset]:
        if self._caching is None:
            self._caching = _cached.caching(self._parent._exp_conf, self._parent._trial_seed)
        return self._caching


class PyTorchExperimentalContext(CachedDatasets):
    """``context.experimental`` of a PyTorchTrial."""

    def __init__(self, parent: Any) -> None:
        super().__init__(parent)
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
