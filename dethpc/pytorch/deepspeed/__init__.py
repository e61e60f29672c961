"""Training with DeepSpeed: write a :class:`DeepSpeedTrial`, and a :class:`Trainer` trains it, on one slot or many."""

from __future__ import annotations

import dethpc.pytorch  # noqa: F401  (says which extra has PyTorch)
from dethpc.extras import needed

with needed("determined.pytorch.deepspeed", "DeepSpeed", "deepspeed"):
    import deepspeed as _deepspeed  # noqa: F401

from dethpc.pytorch.deepspeed._config import get_ds_config_from_hparams, overwrite_deepspeed_config
from dethpc.pytorch.deepspeed._context import DeepSpeedTrialContext
from dethpc.pytorch.deepspeed._mpu import ModelParallelUnit, make_data_parallel_mpu, make_deepspeed_mpu
from dethpc.pytorch.deepspeed._trainer import Trainer, init
from dethpc.pytorch.deepspeed._trial import DeepSpeedTrial, DeepSpeedTrialController

__all__ = [
    "DeepSpeedTrial",
    "DeepSpeedTrialContext",
    "DeepSpeedTrialController",
    "ModelParallelUnit",
    "Trainer",
    "get_ds_config_from_hparams",
    "init",
    "make_data_parallel_mpu",
    "make_deepspeed_mpu",
    "overwrite_deepspeed_config",
]
