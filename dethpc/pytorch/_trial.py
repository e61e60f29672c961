"""PyTorchTrial, and how the loop trains one."""

from __future__ import annotations

import abc
import pathlib
import sys
from typing import Any, Dict, Iterator, List, Optional, Type, Union, cast

import torch
import torch.utils.data

import dethpc
from dethpc.pytorch import _backend, _metrics, _state
from dethpc.pytorch._callback import PyTorchCallback
from dethpc.pytorch._context import PyTorchTrialContext
from dethpc.pytorch._data import DataLoader, TorchData, _dataset_repro_warning, data_length
from dethpc.pytorch._loop import Loop, Plan, accepts, logger
from dethpc.pytorch._metrics import Metrics
from dethpc.pytorch._reducer import Reducer


class PyTorchTrial(metaclass=abc.ABCMeta):
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

    def build_callbacks(self) -> Dict[str, PyTorchCallback]:
        """Callbacks, each under a name by which its state is kept in checkpoints."""
        return {}

    def evaluate_batch(self, batch: TorchData, batch_idx: int) -> Dict[str, Any]:
        """Metrics of one batch of the validation set; ``evaluation_reducer()`` makes one of all batches' values. The work is
        shared by all slots. (A method without ``batch_idx``, as it was once, will do.)"""
        raise NotImplementedError

    def evaluation_reducer(self) -> Union[Reducer, Dict[str, Reducer]]:
        """How validation metrics become one: a :class:`Reducer`, or one for each metric."""
        return Reducer.AVG

    def evaluate_full_dataset(self, data_loader: torch.utils.data.DataLoader) -> Dict[str, Any]:
        """Metrics of the whole validation set, on the chief alone while the other slots wait."""
        raise NotImplementedError

    def get_batch_length(self, batch: Any) -> int:
        """Records of a batch; override it for batches of a type of your own."""
        return data_length(batch)

    @classmethod
    def _train_on_cluster(cls, legacy: bool) -> None:
        """What ``dethpc.exec.harness`` calls: train by the experiment's configuration alone."""
        from dethpc.pytorch import _harness

        _harness.train(cls, legacy)


class _PyTorchTrialController(Loop):
    """Trains a PyTorchTrial."""

    _context: PyTorchTrialContext

    def __init__(self, trial_inst: PyTorchTrial, context: PyTorchTrialContext, plan: Plan) -> None:
        if not isinstance(trial_inst, PyTorchTrial):
            raise TypeError(f"a Trainer trains a PyTorchTrial, not a {type(trial_inst).__name__}")
        if not context.models:
            raise ValueError("the trial has no model: wrap one with context.wrap_model() in __init__()")
        if not context.optimizers:
            raise ValueError("the trial has no optimizer: wrap one with context.wrap_optimizer() in __init__()")
        kind = type(trial_inst)
        self._by_batch = kind.evaluate_batch is not PyTorchTrial.evaluate_batch
        if self._by_batch == (kind.evaluate_full_dataset is not PyTorchTrial.evaluate_full_dataset):
            raise ValueError("define one of evaluate_batch() and evaluate_full_dataset()")
        if context.distributed.size > 1 and not (_backend.uses_torch() or _backend.uses_horovod()):
            raise RuntimeError(
                "several workers exchange gradients by torch_distributed or horovod: start them by one of the two"
            )
        super().__init__(context, trial_inst.build_callbacks(), plan)
        self.trial = trial_inst
        self._takes_batch_idx = self._by_batch and accepts(trial_inst.evaluate_batch, "batch_idx")
        self._training_loader: Any = None
        self._validation_loader: Any = None
        self._batches: Optional[Iterator[Any]] = None

    # --- data -----------------------------------------------------------------------------------------------------------

    def _build_loaders(self, skip: int) -> int:
        self._training_loader = self._loader("build_training_data_loader", repeat=True, skip=skip)
        self._validation_loader = self._loader("build_validation_data_loader")
        self._batches = iter(self._training_loader)
        try:
            return max(1, len(self._training_loader))
        except TypeError:  # of an iterable dataset without a length
            records, per_batch = self._plan.records_per_epoch, self._context._global_batch_size
            return max(1, records // per_batch) if records and per_batch else sys.maxsize

    def _loader(self, build: str, repeat: bool = False, skip: int = 0) -> Any:
        made = getattr(self.trial, build)()
        if isinstance(made, DataLoader):
            if not repeat and not self._by_batch:
                return made.get_data_loader()
            size, rank = self._distributed.size, self._distributed.rank
            return made.get_data_loader(repeat=repeat, skip=skip, num_replicas=size, rank=rank)
        if not self._context.experimental._data_repro_checks_disabled:
            raise RuntimeError(_dataset_repro_warning(build, made))
        return made

    def _next_batch(self) -> Any:
        assert self._batches is not None
        batch = next(self._batches, self)
        if batch is self:  # a loader of the user's own ends with the epoch
            self._batches = iter(self._training_loader)
            batch = next(self._batches, self)
            if batch is self:
                raise RuntimeError("the training data loader yields no batch")
        return batch

    def _close(self) -> None:
        # Loader workers end with the iterator; left to the interpreter's end they may hang it.
        self._batches = None
        if self._context.profiler is not None:
            self._context.profiler.stop()

    # --- training -------------------------------------------------------------------------------------------------------

    def _run(self, fresh: bool) -> None:
        if self._distributed.size > 1 and _backend.uses_horovod():
            hvd = _backend.hvd()
            hvd.broadcast_parameters(self._context._main_model.state_dict(), root_rank=0)
            for optimizer in self._context.optimizers:
                hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        if self._context.profiler is not None:
            self._context.profiler.start()
        super()._run(fresh)

    def _prepare_training(self) -> None:
        for model in self._context.models:
            model.train()

    def _train_batch(self, epoch_idx: int, batch_idx: int) -> Metrics:
        context = self._context
        batch = self._next_batch()
        if context.experimental._auto_to_device:
            batch = context.to_device(batch)
        metrics = _metrics.kept(self.trial.train_batch(batch=batch, epoch_idx=epoch_idx, batch_idx=batch_idx))
        context._after_train_batch(batch_idx)
        if context.profiler is not None:
            context.profiler.step()
        return metrics

    def _gather_training_metrics(self, batches: List[Metrics]) -> List[Metrics]:
        batches = _metrics.fetched(batches)
        if self._distributed.size == 1 or not self._context._average_training_metrics:
            return batches
        everybodys = self._distributed.gather(batches)
        return [] if everybodys is None else _metrics.across_slots(everybodys)

    # --- validation -----------------------------------------------------------------------------------------------------

    def _evaluate(self) -> Metrics:
        for model in self._context.models:
            model.eval()
        with torch.no_grad():
            return self._evaluate_by_batch() if self._by_batch else self._evaluate_at_once()

    def _evaluate_at_once(self) -> Metrics:
        metrics: Optional[Metrics] = None
        if self._chief:
            metrics = self.trial.evaluate_full_dataset(data_loader=self._validation_loader)
            if not isinstance(metrics, dict):
                raise TypeError(f"evaluate_full_dataset() returns a dict, not a {type(metrics).__name__}")
            metrics = _metrics.arrays(metrics)
        return cast(Metrics, self._distributed.broadcast(metrics))

    def _evaluate_by_batch(self) -> Metrics:
        for callback in self._callbacks.values():
            callback.on_validation_epoch_start()
        batches: List[Metrics] = []
        for n, batch in enumerate(self._validation_loader):
            if self._context.experimental._auto_to_device:
                batch = self._context.to_device(batch)
            extra = {"batch_idx": n} if self._takes_batch_idx else {}
            metrics = self.trial.evaluate_batch(batch=batch, **extra)
            if not isinstance(metrics, dict):
                raise TypeError(f"evaluate_batch() returns a dict, not a {type(metrics).__name__}")
            if batches and metrics.keys() != batches[0].keys():
                raise ValueError(f"evaluate_batch() returned metrics {list(metrics)} after {list(batches[0])}")
            batches.append(_metrics.kept(metrics))
            if self._plan.test_mode:
                break
        batches = _metrics.fetched(batches)
        for callback in self._callbacks.values():
            callback.on_validation_epoch_end(batches)
        return _metrics.reduced(self._distributed, batches, self.trial.evaluation_reducer())

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    def _store(self, metadata: Dict[str, Any]) -> str:
        metadata = {
            **metadata,
            "determined_version": dethpc.__version__,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
        }
        generators = self._distributed.gather(_state.generators())
        uuid = ""
        if not self._between_steps():
            # Gradients that wait for more batches differ from slot to slot: each slot writes its own.
            with self._store_path(metadata, shard=True) as (path, uuid):
                _state.save_gradients(path, self._distributed, self._context.models)
                if generators is not None:
                    self._save(path, generators)
        elif generators is not None:
            with self._store_path(metadata) as (path, uuid):
                self._save(path, generators)
        return str(self._distributed.broadcast(uuid))

    def _between_steps(self) -> bool:
        return self.state.batches_trained % self._context._aggregation_frequency == 0

    def _save(self, path: pathlib.Path, generators: List[Dict[str, Any]]) -> None:
        context = self._context
        checkpoint: Dict[str, Any] = {
            "models_state_dict": [_state.model_state(model) for model in context.models],
            "optimizers_state_dict": [optimizer.state_dict() for optimizer in context.optimizers],
            "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers],
            "callbacks": {name: callback.state_dict() for name, callback in self._callbacks.items()},
            "rng_state": generators[0],
            "rng_states": generators,
        }
        if context._scaler:
            checkpoint["scaler_state_dict"] = context._scaler.state_dict()
        for callback in self._callbacks.values():
            callback.on_checkpoint_save_start(checkpoint)
        torch.save(checkpoint, path / _state.STATE_DICT)
        self.state.save(path)
        hparams, exp_conf = context._hparams, context._exp_conf
        _state.save_origin(path, "PyTorchTrial", type(self.trial), hparams, exp_conf, not context._is_pre_trainer)
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
        for name, callback in self._callbacks.items():
            if name in checkpoint.get("callbacks", {}):
                callback.load_state_dict(checkpoint["callbacks"][name])
            elif type(callback).load_state_dict is not PyTorchCallback.load_state_dict:
                logger.warning("the checkpoint has no state for callback %r, which begins anew", name)
        if not self._between_steps():
            _state.load_gradients(path, self._distributed, context.models)
        generators = _state.generators_of(checkpoint, self._distributed.rank, self._distributed.size)
        if generators is None:
            logger.warning("the checkpoint has no states of random generators")
        else:
            _state.restore_generators(generators)


def _all(checkpoint: Dict[str, Any], name: str, wanted: List[Any]) -> List[Any]:
    """Raises ValueError when the checkpoint is of another number of models, optimizers or schedulers."""
    found: List[Any] = checkpoint[name]
    if len(found) != len(wanted):
        raise ValueError(f"the checkpoint has {len(found)} in {name}, and the trial has wrapped {len(wanted)}")
    return found
