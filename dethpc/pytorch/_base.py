"""Base class of all trial classes."""

from __future__ import annotations

import abc
from typing import Any, Dict, Type, Union

import torch.utils.data

from dethpc.pytorch._callback import PyTorchCallback
from dethpc.pytorch._data import data_length
from dethpc.pytorch._reducer import Reducer


class _Trial(metaclass=abc.ABCMeta):
    """What to train, and how; a trainer calls the methods."""

    trial_context_class: Type[Any]

    def build_callbacks(self) -> Dict[str, PyTorchCallback]:
        """Callbacks, each under a name by which its state is kept in checkpoints."""
        return {}

    def evaluate_full_dataset(self, data_loader: torch.utils.data.DataLoader) -> Dict[str, Any]:
        """Metrics of the whole validation set, on the chief alone while the other slots wait."""
        raise NotImplementedError

    def evaluation_reducer(self) -> Union[Reducer, Dict[str, Reducer]]:
        """How validation metrics become one: a :class:`Reducer`, or one for each metric."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Records of a batch; override it for batches of a type of your own."""
        return data_length(batch)

    @classmethod
    @abc.abstractmethod
    def _train_on_cluster(cls, legacy: bool) -> None:
        """What ``dethpc.exec.harness`` calls: train by the experiment's configuration alone."""
