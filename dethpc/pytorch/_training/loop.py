"""The training loop: batches, and what is due between them. Trials of all frameworks share it."""

from __future__ import annotations

import abc
import contextlib
import inspect
import logging
import pathlib
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Type, cast

import torch

import dethpc
from dethpc.core._info import get_cluster_info
from dethpc.errors import InvalidHP
from dethpc.pytorch._base import _Trial
from dethpc.pytorch._callback import PyTorchCallback
from dethpc.pytorch._data import DataLoader, _dataset_repro_warning
from dethpc.pytorch._training import metrics as _metrics
from dethpc.pytorch._training import state as _state
from dethpc.pytorch._training.due import Due, Stop
from dethpc.pytorch._training.evaluation import checked, collect
from dethpc.pytorch._training.metrics import Metrics
from dethpc.pytorch._training.policy import CheckpointPolicy
from dethpc.pytorch._training.reports import Reports
from dethpc.pytorch._training.state import _TrialState
from dethpc.pytorch._training.units import Batch, TrainUnit
from dethpc.pytorch._trial_context import _TrialContext

logger = logging.getLogger("dethpc.pytorch")


class Plan(NamedTuple):
    """What ``fit()`` was asked to do."""

    max_length: TrainUnit
    validation_periods: Sequence[TrainUnit]
    checkpoint_period: TrainUnit
    reporting_period: TrainUnit
    checkpoint_policy: str = "best"
    latest_checkpoint: Optional[str] = None
    step_zero_validation: bool = False
    test_mode: bool = False
    profiling_enabled: bool = False
    searcher_metric: Optional[str] = None
    smaller_is_better: bool = True
    records_metric: bool = False
    records_per_epoch: int = 0


class _ShouldExit(Exception):
    """Leaves the loop: the training was asked to stop."""

    def __init__(self, skip_exit_checkpoint: bool = False) -> None:
        super().__init__()
        self.skip_exit_checkpoint = skip_exit_checkpoint


class Loop(abc.ABC):
    """Trains as a :class:`Plan` says. What a framework does its own way is abstract here.

    All workers run it in step: they validate, save and stop after the same batches. It is one class, though a long one, because
    what it does between two batches reads and writes one state.
    """

    api: Type[_Trial]
    """The trial class that it trains."""

    workload_ends_with_epoch = False
    """Whether training metrics are also reported at the end of each epoch, and not only when something is due."""

    def __init__(self, trial: _Trial, context: _TrialContext, plan: Plan) -> None:
        if not isinstance(trial, self.api):
            raise TypeError(f"this Trainer trains a {self.api.__name__}, not a {type(trial).__name__}")
        self.trial = cast(Any, trial)
        self._context = context
        self._core = context._core
        self._distributed = context.distributed
        self._callbacks = callbacks = trial.build_callbacks()
        self._plan = plan
        self._by_batch = self._overridden("evaluate_batch")
        self._takes_batch_idx = self._by_batch and accepts(self.trial.evaluate_batch, "batch_idx")
        self._validation_loader: Any = None
        self._reports_metrics = True  # unless this worker's part of the model has none
        self._chief = self._distributed.rank == 0
        info = get_cluster_info()
        self._on_cluster = info is not None and info.task_type == "TRIAL"
        self._trial_id = int(self._core.train._trial_id) if self._on_cluster else 0
        self.state = _TrialState(trial_id=self._trial_id)
        self._stop = Stop(self._core, context)
        self._policy = CheckpointPolicy(
            self._core.train, plan.checkpoint_policy, plan.searcher_metric, plan.smaller_is_better
        )
        self._reports = Reports(context, plan.records_metric, chief=self._chief, on_cluster=self._on_cluster)
        # Publishing goes on beside the training, unless a callback is to be called when it is done.
        checkpoint = self._core.checkpoint
        awaited = self._overrides_any("on_checkpoint_upload_end")
        self._store_path = checkpoint.store_path if awaited else checkpoint.store_path_async
        # Writing does, too, unless one is to be called with the files.
        self._writes_beside = not awaited and not self._overrides_any("on_checkpoint_end", "on_checkpoint_write_end")
        for callback in callbacks.values():
            if _overrides(callback, "on_checkpoint_end"):
                warnings.warn(
                    "on_checkpoint_end is deprecated: use on_checkpoint_write_end", FutureWarning, stacklevel=2
                )

    # --- a framework's own ----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _build_loaders(self, path: Optional[pathlib.Path]) -> int:
        """Build the data loaders, for training without what ``self.state`` says was trained on, of which the checkpoint at
        ``path`` may know more. The length of an epoch, in batches, of which the chief's counts."""

    @abc.abstractmethod
    def _train_batch(self, epoch_idx: int, batch_idx: int) -> Metrics:
        """Train on the next batch. Its metrics, which nothing changes any more."""

    @abc.abstractmethod
    def _evaluated(self) -> Iterator[Any]:
        """What ``evaluate_batch()`` returns for each batch of this slot."""

    @abc.abstractmethod
    def _store(self, metadata: Dict[str, Any]) -> str:
        """Store a checkpoint by ``self._store_path``, all workers together; its uuid."""

    @abc.abstractmethod
    def _load(self, path: pathlib.Path) -> None:
        """Load the checkpoint at ``path`` into models and the rest."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Let go of the data loaders."""

    # --- the loop -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train to the end, or until asked to stop."""
        with contextlib.ExitStack() as leaving:
            leaving.callback(self._close)
            leaving.callback(self._stop_profiler)
            with self._checkpoint_to_load() as path:
                restored = None if path is None else _TrialState.load(path, self._trial_id)
                self.state = restored or self.state
                self._began_at = self.state.batches_trained
                for callback in self._callbacks.values():
                    callback.on_trial_startup(self.state.batches_trained, self._plan.latest_checkpoint)
                    leaving.callback(callback.on_trial_shutdown)
                # The iterators draw from the random generators, so they are made before those are restored.
                length = self._build_loaders(path)
                self._context._epoch_len = self._distributed.broadcast(length)
                if path is not None:
                    self._load(path)
            for callback in self._callbacks.values():
                callback.on_training_start()
            if self._plan.profiling_enabled:
                self._core.profiler.on()
            try:
                self._run(fresh=restored is None)
            except _ShouldExit as leave:
                if not leave.skip_exit_checkpoint and not self._checkpoint_is_current():
                    self._checkpoint()
            except InvalidHP:
                # The checkpoint of the trial's last state; another slot may not have found out, and would not take part.
                if self._distributed.size == 1 and not self._checkpoint_is_current():
                    self._checkpoint()
                    self._core.checkpoint.wait()
                raise
            self._reports.upload_tensorboard(now=True)
            self._core.checkpoint.wait()
            self._distributed.broadcast(None)  # nobody leaves before the last checkpoint is there

    @contextlib.contextmanager
    def _checkpoint_to_load(self) -> Iterator[Optional[pathlib.Path]]:
        if self._plan.latest_checkpoint is None:
            yield None
            return
        logger.info("restoring checkpoint %s", self._plan.latest_checkpoint)
        with self._core.checkpoint.restore_path(self._plan.latest_checkpoint) as path:
            yield path

    def _stop_profiler(self) -> None:
        if self._context.profiler is not None:
            self._context.profiler.stop()

    def _run(self, fresh: bool) -> None:
        if self._context.profiler is not None:
            self._context.profiler.start()
        if self._plan.step_zero_validation and fresh:
            self._validate()
        while not self._is_complete():
            self._train_until_due()
        if self.state.last_val != self.state.batches_trained:
            self._validate()
        if not self._checkpoint_is_current():
            self._checkpoint()

    def _is_complete(self) -> bool:
        if self._plan.test_mode:
            return self.state.batches_trained > self._began_at
        length = self._plan.max_length
        assert isinstance(length.value, int)
        return (self.state.batches_trained if isinstance(length, Batch) else self.state.epochs_trained) >= length.value

    def _train_until_due(self) -> None:
        """Train until something is due, then do what is due."""
        plan, state, context = self._plan, self.state, self._context
        self._reports.say("training")
        for model in context.models:
            model.train()
        context.reset_reducers()
        epoch_len = context._epoch()
        validation = [Due(unit) for unit in plan.validation_periods]
        checkpoint, report = Due(plan.checkpoint_period), Due(plan.reporting_period)
        dues = [*validation, checkpoint, report]
        soonest = min(due.soonest(state.batches_trained) for due in dues)
        metrics: List[Metrics] = []
        stopping = complete = False
        while not stopping and not complete:
            batch_idx = state.batches_trained
            epoch_idx, within = divmod(batch_idx, epoch_len)
            context._current_batch_idx = batch_idx
            if within == 0:
                self._start_epoch(epoch_idx)
            metrics.append(self._train_batch(epoch_idx, batch_idx))
            if context.profiler is not None:
                context.profiler.step()
            state.batches_trained += 1
            ends = within == epoch_len - 1
            if ends:
                for callback in self._callbacks.values():
                    callback.on_training_epoch_end(epoch_idx)
                state.epochs_trained = epoch_idx + 1
            complete = self._is_complete()
            if ends or batch_idx + 1 >= soonest:
                reached = [due.after(batch_idx + 1, epoch_idx + 1 if ends else None) for due in dues]
                if any(reached) or (ends and self.workload_ends_with_epoch):
                    break
            stopping = self._stop.should_stop()
        self._report_training(metrics)
        if (report.reached or complete) and self._chief:
            self._report_progress()
        if any(due.reached for due in validation) and state.last_val != state.batches_trained:
            self._validate()
        if checkpoint.reached and not self._checkpoint_is_current():
            self._checkpoint()
        self._reports.upload_tensorboard()
        if complete and state.last_val == state.batches_trained and self._checkpoint_is_current():
            return  # nothing is left to do: a stop that comes now must not make it look unfinished
        if stopping or self._stop.should_stop(now=True):
            raise _ShouldExit()

    def _start_epoch(self, epoch_idx: int) -> None:
        for callback in self._callbacks.values():
            if inspect.signature(callback.on_training_epoch_start).parameters:
                callback.on_training_epoch_start(epoch_idx)
            else:  # as it was before Determined 0.17.8
                without: Any = callback.on_training_epoch_start
                without()

    # --- what is due ----------------------------------------------------------------------------------------------------

    def _report_training(self, metrics: List[Metrics]) -> None:
        batches = self._gather_training_metrics(metrics)
        averages = _metrics.averaged(batches)
        averages.update(_metrics.arrays(self._context.reduce_metrics(for_training=True)))
        if self._chief:
            steps = self.state.batches_trained
            self._reports.write_tensorboard("train", steps, averages, batches)
            averages = self._reports.with_time(self.state, averages)
            self._core.train.report_training_metrics(steps, averages, batches)
        if self._callbacks:
            averages, batches = self._distributed.broadcast((averages, _metrics.for_callbacks(batches)))
            for callback in self._callbacks.values():
                callback.on_training_workload_end(avg_metrics=averages, batch_metrics=batches)

    def _gather_training_metrics(self, batches: List[Metrics]) -> List[Metrics]:
        """On the chief: the batches' metrics over all workers."""
        batches = _metrics.fetched(batches)
        if self._distributed.size == 1:
            return batches
        everybodys = self._distributed.gather(batches)
        return [] if everybodys is None else _metrics.across_slots(everybodys)

    def _report_progress(self) -> None:
        length, state = self._plan.max_length, self.state
        assert isinstance(length.value, int)
        done = state.batches_trained if isinstance(length, Batch) else state.epochs_trained
        self._core.train.report_progress(min(1.0, done / max(1, length.value)))

    def _validate(self) -> None:
        self._reports.say("validating")
        self._context.reset_reducers()
        for callback in self._callbacks.values():
            callback.on_validation_start()
        began = time.monotonic()
        generators = _state.generators()
        metrics = self._evaluate()
        # The number of validations must not change what is trained, and a loader draws a seed each time it is gone through.
        _state.restore_generators(generators)
        metrics.update(_metrics.arrays(self._context.reduce_metrics(for_training=False)))
        for callback in self._callbacks.values():
            callback.on_validation_end(metrics)
        steps = self.state.last_val = self.state.batches_trained
        save = False
        if self._chief:
            logger.info("validated in %.3g s, after %d batches", time.monotonic() - began, steps)
            self._reports.write_tensorboard("val", steps, metrics, [])
            save = self._policy.wants(metrics)
            self._core.train.report_validation_metrics(steps, self._reports.with_time(self.state, metrics))
        if self._distributed.broadcast(save) and not self._checkpoint_is_current():
            self._checkpoint()

    def _evaluate(self) -> Metrics:
        """Validate; the metrics, on all workers."""
        for model in self._context.models:
            model.eval()
        with torch.no_grad():
            if not self._by_batch:
                return self._evaluate_at_once()
            for callback in self._callbacks.values():
                callback.on_validation_epoch_start()
            batches = collect(self._evaluated(), counts=self._reports_metrics, one=self._plan.test_mode)
            for callback in self._callbacks.values():
                callback.on_validation_epoch_end(batches)
            return _metrics.reduced(self._distributed, batches, self.trial.evaluation_reducer())

    def _evaluate_at_once(self) -> Metrics:
        metrics: Optional[Metrics] = None
        if self._chief:
            metrics = self.trial.evaluate_full_dataset(data_loader=self._validation_loader)
            metrics = _metrics.arrays(checked(metrics, "full_dataset"))
        return cast(Metrics, self._distributed.broadcast(metrics))

    def _checkpoint_is_current(self) -> bool:
        return self.state.last_ckpt == self.state.batches_trained

    def _checkpoint(self) -> None:
        self._reports.say("checkpointing")
        self.state.last_ckpt = self.state.batches_trained
        metadata = {
            "steps_completed": self.state.batches_trained,
            "determined_version": dethpc.__version__,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
        }
        uuid = self._store(metadata)
        for callback in self._callbacks.values():
            callback.on_checkpoint_upload_end(uuid=uuid)

    # --- what trials of all frameworks have in common -------------------------------------------------------------------

    def _overridden(self, method: str) -> bool:
        return getattr(type(self.trial), method) is not getattr(self.api, method)

    def _loader(self, build: str, **place: Any) -> Any:
        """The trial's loader, for the slot that ``place`` says; one of the user's own as it is."""
        loader = getattr(self.trial, build)()
        if isinstance(loader, DataLoader):
            return loader.get_data_loader(**place)
        if not self._context._data_repro_checks_disabled:
            raise RuntimeError(_dataset_repro_warning(build, loader, self.api.__name__ == "DeepSpeedTrial"))
        return loader

    def _saved_by_all(self) -> Dict[str, Any]:
        """What a checkpoint holds of any trial."""
        return {"callbacks": {name: callback.state_dict() for name, callback in self._callbacks.items()}}

    def _load_callbacks(self, checkpoint: Dict[str, Any]) -> None:
        for name, callback in self._callbacks.items():
            if name in checkpoint.get("callbacks", {}):
                callback.load_state_dict(checkpoint["callbacks"][name])
            elif type(callback).load_state_dict is not PyTorchCallback.load_state_dict:
                logger.warning("the checkpoint has no state for callback %r, which starts from scratch", name)

    def _overrides_any(self, *names: str) -> bool:
        return any(_overrides(callback, name) for callback in self._callbacks.values() for name in names)

    def _save_origin(self, path: pathlib.Path, state: _TrialState) -> None:
        """How far the training is, and how to build the trial again."""
        context = self._context
        state.save(path)
        hparams, exp_conf = context._hparams, context._exp_conf
        is_trainer = not context._is_pre_trainer
        _state.save_origin(path, self.api.__name__, type(self.trial), hparams, exp_conf, is_trainer)


def _overrides(callback: PyTorchCallback, name: str) -> bool:
    return getattr(type(callback), name) is not getattr(PyTorchCallback, name)


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether ``function`` has a parameter ``name``, or takes any."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
