"""DeepSpeedTrial, and its training loop.

A checkpoint holds, beside what the engines write::

    det_state_dict_rank<r>.pth   of each worker: callbacks, random generators, micro-batches drawn (torch.save)
    trial_state.pkl, load_data.json, code/   as of any trial (``dethpc.pytorch._training.state``)
"""

from __future__ import annotations

import abc
import contextlib
import pathlib
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type, Union

import deepspeed
import torch
import torch.utils.data

from dethpc.errors import InvalidTrial
from dethpc.pytorch._base import _Trial
from dethpc.pytorch._data import Batches, DataLoader, TorchData, batches_of_epoch
from dethpc.pytorch._training import metrics as _metrics
from dethpc.pytorch._training import state as _state
from dethpc.pytorch._training.loop import Loop, Plan, logger
from dethpc.pytorch._training.metrics import Metrics
from dethpc.pytorch.deepspeed._context import DeepSpeedTrialContext
from dethpc.pytorch.deepspeed._saving import Saving


class DeepSpeedTrial(_Trial):
    """What to train: subclass it, and hand it to a :class:`Trainer`, or name it to a launcher (``--trial model_def:MyTrial``).

    ``__init__`` makes model engines by ``deepspeed.initialize()`` and wraps them; ``train_batch`` trains on a batch, or on one of
    its micro-batches; ``evaluate_batch`` validates. Engines save themselves, with optimizer and scheduler. ::

        def __init__(self, context):
            self.context = context
            model = Net()
            config = det_ds.get_ds_config_from_hparams(context.get_hparams())
            engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
            self.engine = context.wrap_model_engine(engine)
    """

    trial_context_class: Type[Any] = DeepSpeedTrialContext

    @abc.abstractmethod
    def __init__(self, context: DeepSpeedTrialContext) -> None:
        """Make engines, and wrap them."""

    @abc.abstractmethod
    def train_batch(
        self, dataloader_iter: Optional[Iterator[TorchData]], epoch_idx: int, batch_idx: int
    ) -> Union[torch.Tensor, Dict[str, Any]]:
        """Train; return the loss, or metrics by their names. The indices count batches from the beginning of the training.

        It is called for each micro-batch: take it by ``context.to_device(next(dataloader_iter))``, and call the engine,
        ``engine.backward(loss)`` and ``engine.step()``, which steps with the last micro-batch of a batch. After
        ``context.disable_auto_grad_accumulation()`` it is called once for a batch and does that for every micro-batch. A pipeline
        engine does all of it: ``return {"loss": engine.train_batch(dataloader_iter)}``. ``dataloader_iter`` never ends.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> Optional[DataLoader]:
        """A :class:`DataLoader` of the training set, with batches of ``context.get_train_micro_batch_size_per_gpu()``. Not called
        on workers whose part of the model is not given data."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> Optional[DataLoader]:
        """A :class:`DataLoader` of the validation set; for a pipeline engine with batches of the same size, too."""

    def evaluate_batch(self, dataloader_iter: Optional[Iterator[TorchData]], batch_idx: int) -> Dict[str, Any]:
        """Metrics of the next batch of the validation set; ``evaluation_reducer()`` makes one of all batches' values. The work is
        shared by all slots. A pipeline engine takes as many micro-batches at once as in training:
        ``return {"loss": engine.eval_batch(dataloader_iter)}``."""
        raise NotImplementedError

    def save(self, context: DeepSpeedTrialContext, path: pathlib.Path) -> None:
        """Write the models into the directory ``path``, which all workers write to. Every worker calls it."""
        for n, engine in enumerate(context.models):
            engine.save_checkpoint(str(path), tag=f"model{n}")

    def load(self, context: DeepSpeedTrialContext, load_path: pathlib.Path) -> None:
        """Load what ``save`` has written. Every worker calls it. Raises AssertionError when an engine finds nothing there."""
        for n, engine in enumerate(context.models):
            try:
                directory, _ = engine.load_checkpoint(str(load_path), tag=f"model{n}")
            except AssertionError as error:  # DeepSpeed's often say nothing
                raise AssertionError(f"the checkpoint has nothing that fits engine {n} {error}".rstrip()) from error
            if directory is None:
                raise AssertionError(f"the checkpoint has nothing that fits engine {n}")

    @classmethod
    def _train_on_cluster(cls, legacy: bool) -> None:
        from dethpc.pytorch import _harness
        from dethpc.pytorch.deepspeed import _trainer

        _harness.train(cls, legacy, _trainer.init, _trainer.Trainer)

    @classmethod
    def _test_one_batch(cls, config: Dict[str, Any]) -> None:
        from dethpc.pytorch import _harness
        from dethpc.pytorch.deepspeed import _trainer

        _harness.test_one_batch(cls, config, _trainer.init, _trainer.Trainer)


class DeepSpeedTrialController(Loop):
    """Trains a DeepSpeedTrial; the Trainer makes it."""

    api = DeepSpeedTrial
    workload_ends_with_epoch = True
    _context: DeepSpeedTrialContext

    def __init__(self, trial_inst: DeepSpeedTrial, context: DeepSpeedTrialContext, plan: Plan) -> None:
        if not isinstance(trial_inst, DeepSpeedTrial):
            raise AssertionError(f"this Trainer trains a DeepSpeedTrial, not a {type(trial_inst).__name__}")
        super().__init__(trial_inst, context, plan)
        if not context.models:
            raise InvalidTrial("the trial has no engine: wrap one with context.wrap_model_engine() in __init__()")
        if not self._by_batch and not self._overridden("evaluate_full_dataset"):
            raise ValueError("define evaluate_batch() or evaluate_full_dataset()")
        self._reports_metrics = context._mpu.should_report_metrics
        self._micro_batches = context.get_num_micro_batches_per_slot()
        # A pipeline engine, or the training code itself, goes through the micro-batches of a batch.
        self._at_once = context.use_pipeline_parallel or context._manual_grad_accumulation
        self._batches: Optional[Batches] = None
        self._evaluations = 0
        self._saving = Saving()

    # --- data -----------------------------------------------------------------------------------------------------------

    def _build_loaders(self, path: Optional[pathlib.Path]) -> int:
        mpu = self._context._mpu
        lengths: List[Optional[int]] = [None, None]
        if mpu.should_build_data_loader:
            place = {"num_replicas": mpu.data_parallel_world_size, "rank": mpu.data_parallel_rank}
            drawn = self._drawn(path)
            loader = self._loader("build_training_data_loader", repeat=True, skip=drawn, **place)
            self._validation_loader = self._loader("build_validation_data_loader", **(place if self._by_batch else {}))
            self._batches = Batches(loader, drawn)
            lengths = [batches_of_epoch(loader), batches_of_epoch(self._validation_loader)]
        training, validation = zip(*self._distributed.allgather(lengths))
        self._evaluations = self._shortest(validation, "validation")
        if self._context.use_pipeline_parallel and self._by_batch:
            if self._evaluations < self._micro_batches:
                raise InvalidTrial(
                    f"the validation data loader has {self._evaluations} batches on a slot, and a pipeline engine takes "
                    f"gradient_accumulation_steps = {self._micro_batches} at once"
                )
            self._evaluations //= self._micro_batches
        return max(1, self._shortest(training, "training") // self._micro_batches)

    def _drawn(self, path: Optional[pathlib.Path]) -> int:
        """How many micro-batches this worker has had."""
        if path is None or not self.state.batches_trained:
            return 0
        content = self._read(path)
        if "micro_batches" in content and content["replicas"] == self._context._mpu.data_parallel_world_size:
            return int(content["micro_batches"])
        return self.state.batches_trained * self._micro_batches

    def _shortest(self, lengths: Any, what: str) -> int:
        """All workers are in step, so the shortest loader counts."""
        finite = [length for length in lengths if length is not None]
        if not finite:
            if what == "training" and self._plan.records_per_epoch:
                per_batch = int(self._context.models[0].train_batch_size())
                return self._plan.records_per_epoch // per_batch * self._micro_batches
            raise ValueError(f"the {what} data loader has no length, so it is not known when an epoch ends")
        if min(finite) < max(finite) and self._chief:
            logger.info("the %s data loaders of the slots differ in length: %d batches count", what, min(finite))
        return int(min(finite))

    def _close(self) -> None:
        self._batches = None  # ends loader workers, as of any trial

    # --- training and validation ----------------------------------------------------------------------------------------

    def _train_batch(self, epoch_idx: int, batch_idx: int) -> Metrics:
        parts: List[Metrics] = []
        for _ in range(1 if self._at_once else self._micro_batches):
            metrics = self.trial.train_batch(self._batches, epoch_idx, batch_idx)
            if self._reports_metrics:
                parts.append(_metrics.snapshot(metrics))
        engine = self._context.models[0]
        if not isinstance(engine, deepspeed.PipelineEngine) and engine.micro_steps % self._micro_batches:
            raise AssertionError(
                f"train_batch() has left a batch unfinished: the engine has had {engine.micro_steps} micro-batches, and "
                f"gradient_accumulation_steps is {self._micro_batches}"
            )
        return _metrics.joined(parts)

    def _evaluated(self) -> Iterator[Any]:
        batches = None if self._validation_loader is None else iter(self._validation_loader)
        for n in range(self._evaluations):
            metrics = self.trial.evaluate_batch(batches, *([n] if self._takes_batch_idx else []))
            if self._reports_metrics and not isinstance(metrics, dict):
                raise InvalidTrial(f"evaluate_batch() returns a dict, not a {type(metrics).__name__}")
            yield metrics

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    def _store(self, metadata: Dict[str, Any]) -> str:
        with self._storing(metadata) as (path, uuid):
            checkpoint = {
                **self._saved_by_all(),
                "rng_state": _state.generators(),
                "micro_batches": 0 if self._batches is None else self._batches.drawn,
                "replicas": self._context._mpu.data_parallel_world_size,
            }
            for callback in self._callbacks.values():
                callback.on_checkpoint_save_start(checkpoint)
            torch.save(checkpoint, path / _state_file(self._distributed.rank))
            self.trial.save(self._context, path)
            if self._chief:
                self._save_origin(path, self.state)
            for callback in self._callbacks.values():
                callback.on_checkpoint_end(str(path))
                callback.on_checkpoint_write_end(str(path))
        return uuid

    @contextlib.contextmanager
    def _storing(self, metadata: Dict[str, Any]) -> Iterator[Tuple[pathlib.Path, str]]:
        """Where the engines alone write, the training waits for a copy of what they write."""
        if not self._writes_beside or self._overridden("save"):
            with self._store_path(metadata, shard=True) as both:
                yield both
            return
        checkpoint, saving = self._core.checkpoint, self._saving
        with checkpoint.store_path_async(metadata, shard=True, write=saving.write) as both:
            with saving.copied(self._context.models):
                yield both

    def _load(self, path: pathlib.Path) -> None:
        checkpoint = self._read(path)
        for callback in self._callbacks.values():
            callback.on_checkpoint_load_start(checkpoint)
        if not self._overridden("load"):
            self._check_replicas(checkpoint)
        self.trial.load(self._context, path)
        self._load_callbacks(checkpoint)
        if "rng_state" in checkpoint:
            _state.restore_generators(checkpoint["rng_state"])
        else:
            logger.warning("the checkpoint has no states of random generators")

    def _check_replicas(self, checkpoint: Dict[str, Any]) -> None:
        """Raises InvalidTrial where ZeRO has split its state among another number of slots; DeepSpeed fails later."""
        had, have = checkpoint.get("replicas"), self._context._mpu.data_parallel_world_size
        for engine in self._context.models:
            adapts = engine.load_universal_checkpoint() or engine.zero_elastic_checkpoint()
            if had not in (None, have) and engine.zero_optimization() and not adapts:
                raise InvalidTrial(
                    f"the checkpoint holds the state of ZeRO stage {engine.zero_optimization_stage()} in {had} parts, one for each "
                    f"data-parallel slot, and now there are {have}: go on with {had} (resources.slots_per_trial), or let DeepSpeed "
                    "load a universal checkpoint (checkpoint.load_universal in its configuration)"
                )

    def _read(self, path: pathlib.Path) -> Dict[str, Any]:
        """This worker's own file; the chief's where there were fewer workers. It is pickled: load only your own."""
        for rank in (self._distributed.rank, 0):
            if (path / _state_file(rank)).exists():
                file = path / _state_file(rank)  # of the trial's own checkpoint
                content: Dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False)  # nosec B614
                return content
        raise ValueError("the checkpoint is not one of a DeepSpeedTrial: it has no det_state_dict_rank0.pth")


def _state_file(rank: int) -> str:
    return f"det_state_dict_rank{rank}.pth"
