"""What a trial of PyTorch's gets to work with."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Type, Union

import torch
from torch import nn

from dethpc import core
from dethpc.errors import NotSupportedYet
from dethpc.pytorch import _amp, _backend
from dethpc.pytorch._data import TorchData, _Data, to_device
from dethpc.pytorch._experimental import PyTorchExperimentalContext
from dethpc.pytorch._lr_scheduler import LRScheduler
from dethpc.pytorch._reducer import _PyTorchReducerContext

logger = logging.getLogger("dethpc.pytorch")

_HOROVOD_FUSES = 64  # MiB; the default of optimizations.tensor_fusion_threshold


class _TrialContext(_PyTorchReducerContext):
    """What trials of all frameworks share: hyperparameters, configuration, batch sizes, where the training stands."""

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: Optional[int],
        hparams: Optional[Dict[str, Any]],
        exp_conf: Optional[Dict[str, Any]],
        steps_completed: int,
        enable_tensorboard_logging: bool,
    ) -> None:
        self._core = core_context
        self.distributed = core_context.distributed
        super().__init__(self.distributed.allgather)
        self._trial_seed = trial_seed
        self._hparams = hparams
        self._exp_conf = exp_conf
        self._steps_completed = steps_completed
        self._enable_tensorboard_logging = enable_tensorboard_logging
        self._tbd_writer: Optional[Any] = None
        self._last_tb_reset_ts: Optional[float] = None
        self._stop_requested = False
        self._current_batch_idx: Optional[int] = None
        self._epoch_len: Optional[int] = None
        self._global_batch_size: Optional[int] = None

    # --- what the trial is ----------------------------------------------------------------------------------------------

    def get_hparams(self) -> Dict[str, Any]:
        """The hyperparameters. Raises ValueError when ``init()`` got none."""
        if self._hparams is None:
            raise ValueError("there are no hyperparameters: pass them to init(hparams=...)")
        return self._hparams

    def get_hparam(self, name: str) -> Any:
        """One hyperparameter. Raises ValueError when there is none of that name."""
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(
                f"there is no hyperparameter {name!r}; there are {', '.join(map(repr, hparams)) or 'none'}"
            )
        if name == "global_batch_size":
            logger.warning("get_global_batch_size() and get_per_slot_batch_size() are what is trained with")
        return hparams[name]

    def get_experiment_config(self) -> Dict[str, Any]:
        """The experiment's configuration. Raises ValueError off the cluster, unless ``init()`` got one."""
        if self._exp_conf is None:
            raise ValueError("there is no experiment configuration: pass it to init(exp_conf=...)")
        return self._exp_conf

    def get_data_config(self) -> Dict[str, Any]:
        """The configuration's ``data`` section."""
        found: Dict[str, Any] = self.get_experiment_config().get("data") or {}
        return found

    def get_experiment_id(self) -> int:
        return int(self._core.train._exp_id)

    def get_trial_id(self) -> int:
        return int(self._core.train._trial_id)

    def get_trial_seed(self) -> int:
        """Raises RuntimeError off the cluster, where there is none."""
        if self._trial_seed is None:
            raise RuntimeError("a trial has a seed on the cluster alone")
        return self._trial_seed

    def get_initial_batch(self) -> int:
        """How many batches were trained before this process started."""
        return self._steps_completed

    # --- where the training stands --------------------------------------------------------------------------------------

    def current_train_batch(self) -> int:
        """Index of the batch that is being trained, from the beginning of the training. Raises RuntimeError before it."""
        if self._current_batch_idx is None:
            raise RuntimeError("the training has not begun")
        return self._current_batch_idx

    def current_train_epoch(self) -> int:
        """Index of the epoch that is being trained."""
        return self.current_train_batch() // self._epoch()

    def is_epoch_start(self) -> bool:
        """Whether the batch that is being trained is the first of its epoch."""
        return self.current_train_batch() % self._epoch() == 0

    def is_epoch_end(self) -> bool:
        """Whether the batch that is being trained is the last of its epoch."""
        return (self.current_train_batch() + 1) % self._epoch() == 0

    def _epoch(self) -> int:
        if self._epoch_len is None:
            raise RuntimeError("the training data loader has not been built")
        return self._epoch_len

    def get_stop_requested(self) -> bool:
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask for the training to stop: it saves a checkpoint and ends, alone after this batch, with several slots within
        a fraction of a second. One slot that asks is enough."""
        if not isinstance(stop_requested, bool):
            raise AssertionError("stop_requested is True or False")
        self._stop_requested = stop_requested

    # --- TensorBoard ----------------------------------------------------------------------------------------------------

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Whether reported metrics are written for TensorBoard as well."""
        if not isinstance(enable_tensorboard_logging, bool):
            raise AssertionError("enable_tensorboard_logging is True or False")
        self._enable_tensorboard_logging = enable_tensorboard_logging

    def get_enable_tensorboard_logging(self) -> bool:
        return self._enable_tensorboard_logging

    def get_tensorboard_path(self) -> pathlib.Path:
        """Where to write files for TensorBoard; they are copied to checkpoint storage."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> Any:
        """The ``torch.utils.tensorboard.SummaryWriter`` into which metrics are written. Raises ImportError without the
        package tensorboard."""
        if self._tbd_writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError(
                    f"files for TensorBoard need its package: pip install tensorboard ({error})"
                ) from error
            self._tbd_writer = SummaryWriter(self.get_tensorboard_path())
        return self._tbd_writer

    def _maybe_reset_tbd_writer(self) -> None:
        """Bring what was written to disk. A file is named by the second of its creation, so a new one is begun no sooner."""
        if self._tbd_writer is None:
            return
        now = time.time()
        if self._last_tb_reset_ts is not None and int(now) > int(self._last_tb_reset_ts):
            self._tbd_writer.close()
            self._last_tb_reset_ts = now
        else:
            self._last_tb_reset_ts = self._last_tb_reset_ts or now
            self._tbd_writer.flush()


class PyTorchTrialContext(_TrialContext):
    """Wraps models, optimizers and schedulers, computes gradients and steps; ``init()`` makes it.

    ``device`` is where this worker trains, ``distributed`` knows the other workers, ``models``, ``optimizers`` and
    ``lr_schedulers`` are what has been wrapped, in order.
    """

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: Optional[int],
        hparams: Optional[Dict[str, Any]],
        slots_per_trial: int,
        num_gpus: int,
        exp_conf: Optional[Dict[str, Any]],
        aggregation_frequency: int,
        steps_completed: int,
        managed_training: bool,
        debug_enabled: bool,
        enable_tensorboard_logging: bool = True,
    ) -> None:
        super().__init__(core_context, trial_seed, hparams, exp_conf, steps_completed, enable_tensorboard_logging)
        self._per_slot_batch_size, self._global_batch_size = batch_sizes(hparams or {}, slots_per_trial)
        self._num_gpus = num_gpus
        self._debug_enabled = debug_enabled
        self._managed_training = managed_training
        self._aggregation_frequency = aggregation_frequency
        self.device = self._init_device()
        self._to_device_warned_types: Set[Type[Any]] = set()

        self.models: List[nn.Module] = []
        self.optimizers: List[torch.optim.Optimizer] = []
        self.lr_schedulers: List[LRScheduler] = []
        self.profiler: Any = None
        self.experimental = PyTorchExperimentalContext(self)
        self._main_model = nn.Module()  # has all models below it, each under a name of its own
        self._scaler: Any = None
        self._average_gradients_of: Dict[int, bool] = {}
        self._compressed: Set[int] = set()

        self._fp16_compression_default = False
        self._average_aggregated_gradients_default = True
        self._average_training_metrics = True
        self._bucket_mb: Optional[int] = None
        self._is_pre_trainer = False

    def get_global_batch_size(self) -> int:
        """Records of a batch over all slots: the hyperparameter ``global_batch_size``, rounded down to a multiple of the slots."""
        if self._global_batch_size is None:
            raise ValueError("there is no hyperparameter global_batch_size: pass it to init(hparams=...)")
        return self._global_batch_size

    def get_per_slot_batch_size(self) -> int:
        """Records of a batch on one slot."""
        if self._per_slot_batch_size is None:
            raise ValueError("there is no hyperparameter global_batch_size: pass it to init(hparams=...)")
        return self._per_slot_batch_size

    def _init_device(self) -> torch.device:
        if self._num_gpus < 1:
            return torch.device("cpu")
        device = torch.device("cuda", self.distributed.local_rank)
        torch.cuda.set_device(device)
        return device

    def to_device(self, data: _Data) -> TorchData:
        """``data`` with its tensors and arrays on this worker's device. Batches of the data loaders are there already."""
        return to_device(data, self.device, self._to_device_warned_types)

    # --- wrapping -------------------------------------------------------------------------------------------------------

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Move ``model`` to the device, and let its gradients be averaged over the slots. Use what is returned."""
        if self._managed_training:
            model = model.to(self.device)
            if self._by_ddp() and any(parameter.requires_grad for parameter in model.parameters()):
                options = {} if self._bucket_mb is None else {"bucket_cap_mb": self._bucket_mb}
                model = self._PyTorchDistributedDataParallel(model, **options)
        setattr(self._main_model, f"model_{len(self.models)}", model)
        if self.experimental._auto_amp:
            model = self.autocast_forward_pass(model)
        self.models.append(model)
        return model

    def autocast_forward_pass(self, to_wrap: nn.Module) -> nn.Module:
        """``to_wrap`` with its forward pass under autocast, and its output in float32."""
        return _amp.autocast(to_wrap)

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: Optional[bool] = None,
        average_aggregated_gradients: Optional[bool] = None,
    ) -> torch.optim.Optimizer:
        """Register ``optimizer``, which is of parameters of wrapped models. Use what is returned.

        ``backward_passes_per_step``: how often ``train_batch()`` calls ``backward()`` for one step (only Horovod needs to know).
        ``fp16_compression``: exchange gradients as float16. ``average_aggregated_gradients``: divide gradients that were
        aggregated over several batches by their number. The last two default to the configuration's ``optimizations``.
        """
        if backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step is at least 1, not {backward_passes_per_step}")
        compress = self._fp16_compression_default if fp16_compression is None else fp16_compression
        if self._managed_training and self._by_horovod():
            hvd = _backend.hvd()
            mine = {id(parameter) for parameter in _parameters(optimizer)}
            optimizer = hvd.DistributedOptimizer(
                optimizer,
                named_parameters=[(n, p) for n, p in self._main_model.named_parameters() if id(p) in mine],
                backward_passes_per_step=backward_passes_per_step * self._aggregation_frequency,
                compression=hvd.Compression.fp16 if compress else hvd.Compression.none,
            )
        elif compress and self._managed_training:
            self._compress(optimizer)
        if average_aggregated_gradients is None:
            average_aggregated_gradients = self._average_aggregated_gradients_default
        self._average_gradients_of[id(optimizer)] = bool(average_aggregated_gradients)
        self.optimizers.append(optimizer)
        return optimizer

    def _compress(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the models of these parameters exchange gradients as float16. A model takes one such hook."""
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        mine = {id(parameter) for parameter in _parameters(optimizer)}
        for model in self._ddp_models():
            if id(model) not in self._compressed and any(id(p) in mine for p in model.parameters()):
                model.register_comm_hook(None, fp16_compress_hook)
                self._compressed.add(id(model))

    def wrap_lr_scheduler(
        self,
        lr_scheduler: torch.optim.lr_scheduler._LRScheduler,
        step_mode: LRScheduler.StepMode,
        frequency: int = 1,
    ) -> torch.optim.lr_scheduler._LRScheduler:
        """Register ``lr_scheduler``, which is of a wrapped optimizer, to be saved and, as ``step_mode`` says, stepped.

        Raises ValueError for an optimizer that is not wrapped, and for a ReduceLROnPlateau in another mode than MANUAL_STEP:
        it wants a metric, so step it in ``on_validation_end()`` of a callback.
        """
        if isinstance(lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            if step_mode is not LRScheduler.StepMode.MANUAL_STEP:
                raise ValueError(
                    "ReduceLROnPlateau wants a metric to step: wrap it with MANUAL_STEP, and call its step(metrics[...]) in "
                    "on_validation_end() of a PyTorchCallback"
                )
        of = getattr(lr_scheduler, "optimizer", None)
        if of is not None and not any(of is optimizer for optimizer in self.optimizers):
            raise ValueError("the scheduler is of an optimizer that wrap_optimizer() did not return")
        self.lr_schedulers.append(LRScheduler(lr_scheduler, step_mode, frequency))
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Register a ``GradScaler``, to be saved. Scaling, unscaling and updating are up to the training code, and
        ``step_optimizer(..., scaler=scaler)`` steps by it. Raises ValueError on a second call, or after ``wrap_model``."""
        if self._scaler is not None:
            raise ValueError("wrap_scaler() or experimental.use_amp() may be called once")
        if self.models:
            raise ValueError("call wrap_scaler() or experimental.use_amp() before wrap_model()")
        self._scaler = scaler
        return scaler

    def configure_apex_amp(
        self,
        models: Union[nn.Module, List[nn.Module]],
        optimizers: Union[torch.optim.Optimizer, List[torch.optim.Optimizer]],
        enabled: Optional[bool] = True,
        opt_level: Optional[str] = "O1",
        cast_model_type: Optional[torch.dtype] = None,
        patch_torch_functions: Optional[bool] = None,
        keep_batchnorm_fp32: Optional[Union[bool, str]] = None,
        master_weights: Optional[bool] = None,
        loss_scale: Optional[Union[float, str]] = None,
        cast_model_outputs: Optional[torch.dtype] = None,
        num_losses: Optional[int] = 1,
        verbosity: Optional[int] = 1,
        min_loss_scale: Optional[float] = None,
        max_loss_scale: Optional[float] = 2.0**24,
    ) -> Tuple[Any, Any]:
        """Refused unless ``enabled=False``, which changes nothing: NVIDIA gave apex.amp up for PyTorch's own. Use
        ``experimental.use_amp()``. Raises NotSupportedYet."""
        if not enabled or not self._managed_training:
            return models, optimizers
        raise NotSupportedYet(
            "apex.amp is not supported, PyTorch's own mixed precision is: call context.experimental.use_amp() before wrap_model()"
        )

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile the training with ``torch.profiler.profile(*args, **kwargs)``: it is stepped after each batch, and its traces go
        to TensorBoard's files."""
        kwargs["on_trace_ready"] = torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path()))
        self.profiler = torch.profiler.profile(*args, **kwargs)

    # --- gradients and steps --------------------------------------------------------------------------------------------

    def backward(
        self,
        loss: torch.Tensor,
        gradient: Optional[torch.Tensor] = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """``loss.backward(...)``: gradients are exchanged between the slots only with batches that lead to a step."""
        if self._scaler and self.experimental._auto_amp:
            loss = self._scaler.scale(loss)
        with contextlib.nullcontext() if self._should_communicate_and_update() else self._no_sync():
            loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)

    @contextlib.contextmanager
    def _no_sync(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for model in self._ddp_models():
                stack.enter_context(model.no_sync())
            yield

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Optional[Callable[[Any], None]] = None,
        auto_zero_grads: bool = True,
        scaler: Optional[Any] = None,
    ) -> None:
        """Step ``optimizer``; with ``optimizations.aggregation_frequency`` above 1, only after that many batches.

        ``clip_grads`` gets the parameters, with unscaled gradients. ``auto_zero_grads``: gradients are zeroed afterwards;
        False is not possible with aggregation (ValueError). ``scaler``: the one that ``wrap_scaler`` returned.
        """
        if self._aggregation_frequency > 1 and not auto_zero_grads:
            raise ValueError("auto_zero_grads=False does not go with an aggregation_frequency above 1")
        if not self._should_communicate_and_update():
            return
        by_horovod = self._managed_training and self._by_horovod()
        if by_horovod:
            optimizer.synchronize()
        if self._aggregation_frequency > 1 and self._average_gradients_of.get(id(optimizer), True):
            self._average_gradients(_parameters(optimizer), self._aggregation_frequency)
        automatic = self._scaler if self.experimental._auto_amp else None
        if clip_grads is not None:
            if automatic:
                automatic.unscale_(optimizer)
            clip_grads(list(_parameters(optimizer)))
        scaler = scaler or automatic
        with optimizer.skip_synchronize() if by_horovod else contextlib.nullcontext():
            if scaler:
                scaler.step(optimizer)
            else:
                optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    @staticmethod
    def _average_gradients(parameters: Iterable[Any], divisor: int) -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.data.div_(float(divisor))

    def _should_communicate_and_update(self) -> bool:
        if not self._managed_training or self._aggregation_frequency == 1:
            return True
        return (self.current_train_batch() + 1) % self._aggregation_frequency == 0

    def _after_train_batch(self, batch_idx: int) -> None:
        """What follows a batch that led to a step: the automatic scaler's update, and the schedulers' steps."""
        if not self._should_communicate_and_update():
            return
        if self._scaler and self.experimental._auto_amp:
            self._scaler.update()
        for scheduler in self.lr_schedulers:
            scheduler._after_batch(batch_idx, self._aggregation_frequency, self._epoch())

    # --- settings, from the configuration -------------------------------------------------------------------------------

    def _set_default_gradient_compression(self, gradient_compression: bool) -> None:
        self._fp16_compression_default = gradient_compression

    def _set_default_average_aggregated_gradients(self, average_aggregated_gradients: bool) -> None:
        self._average_aggregated_gradients_default = average_aggregated_gradients

    def _set_is_pre_trainer(self) -> None:
        self._is_pre_trainer = True

    def _optimize(self, optimizations: Dict[str, Any]) -> None:
        """Take up the configuration's ``optimizations``, before any model is wrapped."""
        if self._aggregation_frequency == 1:
            self._aggregation_frequency = int(optimizations.get("aggregation_frequency") or 1)
        self._set_default_gradient_compression(bool(optimizations.get("gradient_compression")))
        self._set_default_average_aggregated_gradients(optimizations.get("average_aggregated_gradients") is not False)
        self._average_training_metrics = optimizations.get("average_training_metrics") is not False
        fused = optimizations.get("tensor_fusion_threshold", _HOROVOD_FUSES)
        if fused != _HOROVOD_FUSES:
            self._bucket_mb = max(1, int(fused))
        if optimizations.get("mixed_precision") == "O1":
            self.experimental.use_amp()

    # --- who exchanges gradients ----------------------------------------------------------------------------------------

    def _by_ddp(self) -> bool:
        return self.distributed.size > 1 and _backend.uses_torch() and not _backend.uses_horovod()

    def _by_horovod(self) -> bool:
        return self.distributed.size > 1 and _backend.uses_horovod()

    def _ddp_models(self) -> List[Any]:
        return [model for model in self.models if isinstance(model, nn.parallel.DistributedDataParallel)]

    class _PyTorchDistributedDataParallel(nn.parallel.DistributedDataParallel):
        """Has the attributes of the model inside, so that training code need not care."""

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("module"), name)


def batch_sizes(hparams: Dict[str, Any], slots: int) -> Tuple[Optional[int], Optional[int]]:
    """(per slot, over all slots) from the hyperparameter ``global_batch_size``; (None, None) without it. Raises ValueError."""
    wanted = hparams.get("global_batch_size")
    if not wanted:
        return None, None
    slots = max(slots, 1)
    if not isinstance(wanted, int):
        raise ValueError(f"the hyperparameter global_batch_size is a whole number, not {wanted!r}")
    if wanted < slots:
        raise ValueError(
            f"the hyperparameter global_batch_size is {wanted}: {slots} slots need at least one record each"
        )
    if wanted % slots:
        logger.warning(
            "global_batch_size is %d instead of %d, to divide by %d slots", wanted // slots * slots, wanted, slots
        )
    return wanted // slots, wanted // slots * slots


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]
