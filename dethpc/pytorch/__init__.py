"""Training with PyTorch: write a :class:`PyTorchTrial`, and a :class:`Trainer` trains it, on one slot or many."""

from __future__ import annotations

from dethpc.extras import needed

with needed("determined.pytorch", "PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from dethpc.pytorch import samplers
from dethpc.pytorch._cached import CachedDataset
from dethpc.pytorch._callback import PyTorchCallback
from dethpc.pytorch._context import PyTorchTrialContext
from dethpc.pytorch._data import (
    DataLoader,
    TorchData,
    _Data,
    _dataset_repro_warning,
    adapt_batch_sampler,
    data_length,
    to_device,
)
from dethpc.pytorch._experimental import PyTorchExperimentalContext
from dethpc.pytorch._load import CheckpointLoadContext, load_trial_from_checkpoint_path
from dethpc.pytorch._lr_scheduler import LRScheduler
from dethpc.pytorch._reducer import (
    MetricReducer,
    Reducer,
    _PyTorchReducerContext,
    _simple_reduce_metrics,
    _SimpleReducer,
)
from dethpc.pytorch._snapshot import Snapshot
from dethpc.pytorch._trainer import Trainer, init
from dethpc.pytorch._training.loop import _ShouldExit
from dethpc.pytorch._training.state import _TrialState
from dethpc.pytorch._training.units import Batch, Epoch, TrainUnit
from dethpc.pytorch._trial import PyTorchTrial, _PyTorchTrialController

__all__ = [
    "Batch",
    "CachedDataset",
    "CheckpointLoadContext",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "Snapshot",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "_Data",
    "_PyTorchReducerContext",
    "_PyTorchTrialController",
    "_ShouldExit",
    "_SimpleReducer",
    "_TrialState",
    "_dataset_repro_warning",
    "_simple_reduce_metrics",
    "adapt_batch_sampler",
    "data_length",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]
