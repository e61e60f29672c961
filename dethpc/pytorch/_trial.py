"""PyTorchTrial, and its training loop."""

from __future__ import annotations

import abc
import copy
import pathlib
import sys
from typing import Any, Dict, Iterator, List, Optional, Type, Union

import torch
import torch.utils.data

from dethpc.errors import InvalidTrial
from dethpc.pytorch import _backend
from dethpc.pytorch._base import _Trial
from dethpc.pytorch._context import PyTorchTrialContext
from dethpc.pytorch._data import Batches, DataLoader, TorchData, batches_of_epoch
from dethpc.pytorch._snapshot import Snapshot
from dethpc.pytorch._training import metrics as _metrics
from dethpc.pytorch._training import state as _state
from dethpc.pytorch._training.loop import Loop, Plan, logger
from dethpc.pytorch._training.metrics import Metrics


class PyTorchTrial(_Trial):
    """What to train: subclass it, and hand it to a :class:`Trainer`, or name it to a launcher (``--trial model_def:MyTrial``).

    ``__init__`` wraps models, optimizers and schedulers by the context; ``train_batch`` trains on a batch; one of
    ``evaluate_batch`` and ``evaluate_full_dataset`` validates. What is not wrapped is not saved.
    """

    trial_context_class: Type[Any] = PyTorchTrialContext

    @abc.abstractmethod
    def __init__(self, context: PyTorchTrialContext) -> None:
        """Build and wrap models, optimizers and schedulers."""

    @abc.abstractmethod
    def train_batch(self, batch: TorchData, epoch_idx: int, batch_idx: int) -> Union[torch.Tensor, Dict[str, Any]]:
        """Train on one batch, which is on the device already; return the loss, or metrics by their names.

        Call ``context.backward(loss)`` and ``context.step_optimizer(optimizer)``. The indices count from the beginning of the
        training, per slot.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> Union[DataLoader, torch.utils.data.DataLoader]:
        """A :class:`DataLoader` of the training set, with batches of ``context.get_per_slot_batch_size()``."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> Union[DataLoader, torch.utils.data.DataLoader]:
        """A :class:`DataLoader` of the validation set."""

    def evaluate_batch(self, batch: TorchData, batch_idx: int) -> Dict[str, Any]:
        """Metrics of one batch of the validation set; ``evaluation_reducer()`` makes one of all batches' values. The work is
        shared by all slots. (A method without ``batch_idx``, as it was once, will do.)"""
        raise NotImplementedError

    @classmethod
    def _train_on_cluster(cls, legacy: bool) -> None:
        from dethpc.pytorch import _harness, _trainer

        _harness.train(cls, legacy, _trainer.init, _trainer.Trainer)

    @classmethod
    def _test_one_batch(cls, config: Dict[str, Any]) -> None:
        from dethpc.pytorch import _harness, _trainer

        _harness.test_one_batch(cls, config, _trainer.init, _trainer.Trainer)


class _PyTorchTrialController(Loop):
    """Trains a PyTorchTrial."""

    api = PyTorchTrial
    _context: PyTorchTrialContext

    def __init__(self, trial_inst: PyTorchTrial, context: PyTorchTrialContext, plan: Plan) -> None:
        super().__init__(trial_inst, context, plan)
        if not context.models:
            raise InvalidTrial("the trial has no model: wrap one with context.wrap_model() in __init__()")
        if not context.optimizers:
            raise InvalidTrial("the trial has no optimizer: wrap one with context.wrap_optimizer() in __init__()")
        if self._by_batch == self._overridden("evaluate_full_dataset"):
            raise InvalidTrial("define one of evaluate_batch() and evaluate_full_dataset()")
        if context.distributed.size > 1 and not (_backend.uses_torch() or _backend.uses_horovod()):
            raise RuntimeError(
                "several workers exchange gradients by torch_distributed or horovod: start them by one of the two"
            )
        self._batches: Optional[Batches] = None
        self._snapshot = Snapshot()

    # --- data -----------------------------------------------------------------------------------------------------------

    def _build_loaders(self, path: Optional[pathlib.Path]) -> int:
        place = {"num_replicas": self._distributed.size, "rank": self._distributed.rank}
        loader = self._loader("build_training_data_loader", repeat=True, skip=self.state.batches_trained, **place)
        self._validation_loader = self._loader("build_validation_data_loader", **(place if self._by_batch else {}))
        self._batches = Batches(loader)
        length = batches_of_epoch(loader)
        if length is None:  # of an iterable dataset
            records, per_batch = self._plan.records_per_epoch, self._context._global_batch_size
            length = records // per_batch if records and per_batch else sys.maxsize
        return max(1, length)

    def _close(self) -> None:
        # Loader workers end with the iterator; left to the interpreter's end they may hang it.
        self._batches = None

    # --- training -------------------------------------------------------------------------------------------------------

    def _run(self, fresh: bool) -> None:
        if self._distributed.size > 1 and _backend.uses_horovod():
            hvd = _backend.hvd()
            hvd.broadcast_parameters(self._context._main_model.state_dict(), root_rank=0)
            for optimizer in self._context.optimizers:
                if optimizer.state:  # to give a new one state, Horovod takes a step that counts
                    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        super()._run(fresh)

    def _train_batch(self, epoch_idx: int, batch_idx: int) -> Metrics:
        context = self._context
        assert self._batches is not None
        batch = next(self._batches)
        if context.experimental._auto_to_device:
            batch = context.to_device(batch)
        metrics = _metrics.snapshot(self.trial.train_batch(batch=batch, epoch_idx=epoch_idx, batch_idx=batch_idx))
        context._after_train_batch(batch_idx)
        return metrics

    def _gather_training_metrics(self, batches: List[Metrics]) -> List[Metrics]:
        if not self._context._average_training_metrics:
            return _metrics.fetched(batches)
        return super()._gather_training_metrics(batches)

    # --- validation -----------------------------------------------------------------------------------------------------

    def _evaluated(self) -> Iterator[Any]:
        for n, batch in enumerate(self._validation_loader):
            if self._context.experimental._auto_to_device:
                batch = self._context.to_device(batch)
            extra = {"batch_idx": n} if self._takes_batch_idx else {}
            yield self.trial.evaluate_batch(batch=batch, **extra)

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    def _store(self, metadata: Dict[str, Any]) -> str:
        generators = self._distributed.gather(_state.generators())
        uuid = ""
        if not self._between_steps():
            # Gradients that wait for more batches differ from slot to slot: each slot writes its own.
            with self._store_path(metadata, shard=True) as (path, uuid):
                _state.save_gradients(path, self._distributed, self._context.models)
                if generators is not None:
                    self._save(path, self._whole_state(generators), self.state)
        elif generators is not None:
            uuid = self._store_alone(metadata, self._whole_state(generators))
        return str(self._distributed.broadcast(uuid))

    def _between_steps(self) -> bool:
        return self.state.batches_trained % self._context._aggregation_frequency == 0

    def _store_alone(self, metadata: Dict[str, Any], checkpoint: Dict[str, Any]) -> str:
        """The chief's. Where there is room for a copy of the state, the training waits for nothing else."""
        self._core.checkpoint.wait()  # it may still be writing the last copy
        if self._writes_beside and self._snapshot.has_room(checkpoint):
            snapshot, state = self._snapshot.take(checkpoint), copy.copy(self.state)
            return self._core.checkpoint.store_async(lambda path: self._save(path, snapshot, state), metadata)
        with self._store_path(metadata) as (path, uuid):
            self._save(path, checkpoint, self.state)
        return uuid

    def _whole_state(self, generators: List[Dict[str, Any]]) -> Dict[str, Any]:
        context = self._context
        checkpoint: Dict[str, Any] = {
            "models_state_dict": [_state.model_state(model) for model in context.models],
            "optimizers_state_dict": [optimizer.state_dict() for optimizer in context.optimizers],
            "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers],
            **self._saved_by_all(),
            "rng_state": generators[0],
            "rng_states": generators,
        }
        if context._scaler:
            checkpoint["scaler_state_dict"] = context._scaler.state_dict()
        for callback in self._callbacks.values():
            callback.on_checkpoint_save_start(checkpoint)
        return checkpoint

    def _save(self, path: pathlib.Path, checkpoint: Dict[str, Any], state: _state._TrialState) -> None:
        torch.save(checkpoint, path / _state.STATE_DICT)
        self._save_origin(path, state)
        for callback in self._callbacks.values():
            callback.on_checkpoint_end(str(path))
            callback.on_checkpoint_write_end(str(path))

    def _load(self, path: pathlib.Path) -> None:
        checkpoint = _state.read_checkpoint(path)
        for callback in self._callbacks.values():
            callback.on_checkpoint_load_start(checkpoint)
        context = self._context
        for model, state in zip(context.models, _all(checkpoint, "models_state_dict", context.models)):
            _state.load_model(model, state)
        for optimizer, state in zip(context.optimizers, _all(checkpoint, "optimizers_state_dict", context.optimizers)):
            optimizer.load_state_dict(state)
        schedulers = context.lr_schedulers
        for scheduler, state in zip(schedulers, _all(checkpoint, "lr_schedulers_state_dict", schedulers)):
            scheduler.load_state_dict(state)
        if bool(context._scaler) != ("scaler_state_dict" in checkpoint):
            logger.warning("the checkpoint and the trial do not both use a gradient scaler")
        elif context._scaler and checkpoint["scaler_state_dict"]:
            context._scaler.load_state_dict(checkpoint["scaler_state_dict"])
        self._load_callbacks(checkpoint)
        if not self._between_steps():
            _state.load_gradients(path, self._distributed, context.models)
        generators = _state.generators_of(checkpoint, self._distributed.rank, self._distributed.size)
        if generators is None:
            logger.warning("the checkpoint has no states of random generators")
        else:
            _state.restore_generators(generators)


def _all(checkpoint: Dict[str, Any], name: str, wrapped: List[Any]) -> List[Any]:
    """Raises ValueError when the checkpoint is of fewer models, optimizers or schedulers. Of more the first ones are taken."""
    states: List[Any] = checkpoint[name]
    message = f"the checkpoint has {len(states)} in {name}, and the trial has wrapped {len(wrapped)}"
    if len(states) < len(wrapped):
        raise ValueError(message)
    if len(states) > len(wrapped):
        logger.warning("%s: the first are loaded", message)
    return states
