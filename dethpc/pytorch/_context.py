"""The context of a PyTorchTrial."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union

import torch
from torch import nn

from dethpc import core
from dethpc.errors import InvalidTrial
from dethpc.pytorch import _amp, _backend
from dethpc.pytorch._experimental import PyTorchExperimentalContext
from dethpc.pytorch._lr_scheduler import LRScheduler
from dethpc.pytorch._trial_context import _TrialContext

_HOROVOD_FUSES = 64  # MiB; the default of optimizations.tensor_fusion_threshold


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
        self._num_gpus = num_gpus
        super().__init__(core_context, trial_seed, hparams, slots_per_trial, exp_conf, steps_completed)
        self._enable_tensorboard_logging = enable_tensorboard_logging
        self._debug_enabled = debug_enabled
        self._managed_training = managed_training
        self._aggregation_frequency = aggregation_frequency

        self.optimizers: List[torch.optim.Optimizer] = []
        self.lr_schedulers: List[LRScheduler] = []
        self.experimental = PyTorchExperimentalContext(self)
        self._main_model = nn.Module()  # has all models below it, each under a name of its own
        self._scaler: Any = None
        self._average_gradients_of: Dict[int, bool] = {}
        self._compressed: Set[int] = set()

        self._fp16_compression_default = False
        self._average_aggregated_gradients_default = True
        self._average_training_metrics = True
        self._bucket_mb: Optional[int] = None

    def _init_device(self) -> torch.device:
        if self._num_gpus < 1:
            return torch.device("cpu")
        device = torch.device("cuda", self.distributed.local_rank)
        torch.cuda.set_device(device)
        return device

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

        ``backward_passes_per_step``: how many times ``train_batch()`` calls ``backward()`` for a step (only Horovod needs it).
        ``fp16_compression``: exchange gradients as float16. ``average_aggregated_gradients``: divide gradients that were
        aggregated over several batches by their number. The last two default to the configuration's ``optimizations``.
        """
        if backward_passes_per_step < 1:
            raise InvalidTrial(f"backward_passes_per_step is at least 1, not {backward_passes_per_step}")
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

        Raises InvalidTrial for an optimizer that is not wrapped, and for a ReduceLROnPlateau in another mode than MANUAL_STEP:
        it wants a metric, so step it in ``on_validation_end()`` of a callback.
        """
        if isinstance(lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            if step_mode is not LRScheduler.StepMode.MANUAL_STEP:
                raise InvalidTrial(
                    "ReduceLROnPlateau wants a metric to step: wrap it with MANUAL_STEP, and call its step(metrics[...]) in "
                    "on_validation_end() of a PyTorchCallback"
                )
        of = getattr(lr_scheduler, "optimizer", None)
        if of is not None and not any(of is optimizer for optimizer in self.optimizers):
            raise InvalidTrial("the scheduler is of an optimizer that wrap_optimizer() did not return")
        self.lr_schedulers.append(LRScheduler(lr_scheduler, step_mode, frequency))
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Register a ``GradScaler``, to be saved. Scaling, unscaling and updating are up to the training code, and
        ``step_optimizer(..., scaler=scaler)`` steps by it. Raises InvalidTrial on a second call, or after ``wrap_model``."""
        if self._scaler is not None:
            raise InvalidTrial("wrap_scaler() or experimental.use_amp() may be called once")
        if self.models:
            raise InvalidTrial("call wrap_scaler() or experimental.use_amp() before wrap_model()")
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
        ``experimental.use_amp()``. Raises InvalidTrial."""
        if not enabled or not self._managed_training:
            return models, optimizers
        raise InvalidTrial(
            "apex.amp is not supported, PyTorch's own mixed precision is: call context.experimental.use_amp() before wrap_model()"
        )

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
        False is not possible with aggregation (InvalidTrial). ``scaler``: the one that ``wrap_scaler`` returned.
        """
        if self._aggregation_frequency > 1 and not auto_zero_grads:
            raise InvalidTrial("auto_zero_grads=False does not go with an aggregation_frequency above 1")
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


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]
