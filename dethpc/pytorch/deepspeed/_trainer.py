"""``init()`` and the Trainer."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, Optional

import torch

from dethpc import core
from dethpc.pytorch._training.fit import TrainerBase, setting
from dethpc.pytorch._training.loop import Loop, Plan
from dethpc.pytorch.deepspeed import _workers
from dethpc.pytorch.deepspeed._context import DeepSpeedTrialContext
from dethpc.pytorch.deepspeed._trial import DeepSpeedTrial, DeepSpeedTrialController


class Trainer(TrainerBase):
    """Trains a trial, inside ``with init() as context:``. ::

    with det_ds.init(hparams=hparams) as context:
        trainer = det_ds.Trainer(MyTrial(context), context)
        trainer.fit(max_length=pytorch.Epoch(10), latest_checkpoint=det.get_cluster_info().latest_checkpoint)
    """

    def __init__(self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext) -> None:
        super().__init__(trial, context)

    def _loop(self, plan: Plan) -> Loop:
        assert isinstance(self._context, DeepSpeedTrialContext)
        return DeepSpeedTrialController(self._trial, self._context, plan)


@contextlib.contextmanager
def init(
    *,
    hparams: Optional[Dict[str, Any]] = None,
    exp_conf: Optional[Dict[str, Any]] = None,
    distributed: Optional[core.DistributedContext] = None,
    enable_tensorboard_logging: bool = True,
) -> Iterator[DeepSpeedTrialContext]:
    """The context in which a trial is built and trained.

    ``hparams``: on the cluster ``det.get_cluster_info().trial.hparams``. ``exp_conf``: a configuration for use outside the cluster;
    on it, the experiment's is taken. ``distributed``: the workers, outside the cluster, when they were not started by DeepSpeed's
    launcher; on it, the launcher says. ``enable_tensorboard_logging``: write reported metrics for TensorBoard as well.

    It calls ``deepspeed.init_distributed()``, unless ``DET_MANUAL_INIT_DISTRIBUTED`` is set: then the training code does, before
    or after. On the cluster all random generators are seeded with the trial's seed, the same on every slot.
    """
    with setting(exp_conf, distributed, _workers.initialize) as here:
        yield DeepSpeedTrialContext(
            core_context=here.core,
            trial_seed=here.seed,
            hparams=hparams,
            slots_per_trial=here.core.distributed.size,
            num_gpus=torch.cuda.device_count(),
            exp_conf=here.exp_conf,
            steps_completed=here.steps_completed,
            enable_tensorboard_logging=enable_tensorboard_logging,
        )
