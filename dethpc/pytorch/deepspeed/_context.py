"""The context of a DeepSpeedTrial."""

from __future__ import annotations

import warnings
from typing import Any, Dict, List, Optional

import deepspeed
import torch

from dethpc import core
from dethpc.errors import InvalidTrial
from dethpc.pytorch._experimental import CachedDatasets
from dethpc.pytorch._trial_context import _TrialContext, logger
from dethpc.pytorch.deepspeed import _workers
from dethpc.pytorch.deepspeed._mpu import ModelParallelUnit, make_data_parallel_mpu, make_deepspeed_mpu


class DeepSpeedTrialContext(_TrialContext):
    """Knows the model engines; ``init()`` makes it.

    ``device`` is where this worker trains, ``distributed`` knows the other workers, ``models`` are the engines that have been
    wrapped, in order. Models, optimizers and schedulers go to ``deepspeed.initialize()``, and only the engine that it returns to
    ``wrap_model_engine()``. The first engine says how large batches are and who gets which data. ``experimental`` has the
    decorators of the data layer.
    """

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: Optional[int],
        hparams: Optional[Dict[str, Any]],
        slots_per_trial: int,
        num_gpus: int,
        exp_conf: Optional[Dict[str, Any]],
        steps_completed: int,
        enable_tensorboard_logging: bool = True,
    ) -> None:
        self._num_gpus = num_gpus
        super().__init__(core_context, trial_seed, hparams, slots_per_trial, exp_conf, steps_completed)
        self._enable_tensorboard_logging = enable_tensorboard_logging
        self.models: List[deepspeed.DeepSpeedEngine] = []
        self.experimental = CachedDatasets(self)
        self._mpu = make_data_parallel_mpu(self.distributed)
        self._called_set_mpu = False
        self._train_micro_batch_size_per_gpu: Optional[int] = None
        self._num_micro_batches_per_slot: Optional[int] = None
        self._use_pipeline_parallel = False
        self._manual_grad_accumulation = False

    def _init_device(self) -> torch.device:
        return _workers.device(self.distributed.local_rank)

    # --- engines --------------------------------------------------------------------------------------------------------

    def wrap_model_engine(self, model: deepspeed.DeepSpeedEngine) -> deepspeed.DeepSpeedEngine:
        """Register an engine, to be put into training or evaluation mode, saved and loaded. A pipeline engine's grid becomes the
        trial's. Returns ``model``."""
        pipeline = isinstance(model, deepspeed.PipelineEngine)
        self._use_pipeline_parallel = self._use_pipeline_parallel or pipeline
        size, count = int(model.train_micro_batch_size_per_gpu()), int(model.gradient_accumulation_steps())
        if not self.models:
            self._train_micro_batch_size_per_gpu, self._num_micro_batches_per_slot = size, count
            if self._global_batch_size is None:
                self._global_batch_size, self._per_slot_batch_size = int(model.train_batch_size()), size * count
            if pipeline:
                self._mpu = make_deepspeed_mpu(model.mpu)
        elif size != self._train_micro_batch_size_per_gpu:
            logger.warning(
                "engine %d has micro batches of %d records; those of the first engine, of %d, are counted",
                len(self.models) + 1,
                size,
                self._train_micro_batch_size_per_gpu,
            )
        self.models.append(model)
        return model

    def set_mpu(self, mpu: ModelParallelUnit) -> None:
        """Say which part of the data and the model this worker has, when neither plain data parallelism nor a pipeline engine
        does. Raises InvalidTrial before the first engine is wrapped, and on a second call."""
        if not self.models:
            raise InvalidTrial("call wrap_model_engine() before set_mpu()")
        if self._called_set_mpu:
            raise InvalidTrial("set_mpu() may be called once")
        self._called_set_mpu = True
        self._mpu = mpu

    @property
    def use_pipeline_parallel(self) -> bool:
        """Whether an engine is a pipeline engine."""
        return self._use_pipeline_parallel

    def disable_auto_grad_accumulation(self) -> None:
        """Let one call of ``train_batch()`` train on all micro-batches of a batch, instead of a call for each. (A pipeline engine
        always does.)"""
        self._manual_grad_accumulation = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow any ``torch.utils.data.DataLoader``. Sharding, shuffling and resuming are up to you then; the classes in
        ``determined.pytorch.samplers`` help."""
        self._data_repro_checks_disabled = True
        logger.info("data loaders of any kind are allowed: sharding and resuming are up to the training code")

    # --- batches --------------------------------------------------------------------------------------------------------

    def get_train_micro_batch_size_per_gpu(self) -> int:
        """Records of one micro-batch on one slot, as DeepSpeed's configuration has them: what a data loader yields at once.
        Raises InvalidTrial before the first engine is wrapped."""
        return _engine_setting(self._train_micro_batch_size_per_gpu)

    def get_num_micro_batches_per_slot(self) -> int:
        """Micro-batches of one batch on one slot: DeepSpeed's ``gradient_accumulation_steps``. Raises InvalidTrial before the first
        engine is wrapped."""
        return _engine_setting(self._num_micro_batches_per_slot)

    @property
    def train_micro_batch_size_per_gpu(self) -> int:
        """Deprecated: use ``get_train_micro_batch_size_per_gpu()``."""
        _deprecated("train_micro_batch_size_per_gpu")
        return self.get_train_micro_batch_size_per_gpu()

    @property
    def num_micro_batches_per_slot(self) -> int:
        """Deprecated: use ``get_num_micro_batches_per_slot()``."""
        _deprecated("num_micro_batches_per_slot")
        return self.get_num_micro_batches_per_slot()


def _engine_setting(value: Optional[int]) -> int:
    if value is None:
        raise InvalidTrial("an engine says how large batches are: call wrap_model_engine() first")
    return value


def _deprecated(name: str) -> None:
    warnings.warn(f"{name} is deprecated: use get_{name}()", FutureWarning, stacklevel=3)
