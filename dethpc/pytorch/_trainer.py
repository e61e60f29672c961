"""``init()`` and the Trainer."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, Optional

import torch

from dethpc import core
from dethpc.pytorch import _backend
from dethpc.pytorch._context import PyTorchTrialContext
from dethpc.pytorch._training.fit import TrainerBase, logger, setting
from dethpc.pytorch._training.loop import Loop, Plan
from dethpc.pytorch._trial import PyTorchTrial, _PyTorchTrialController


class Trainer(TrainerBase):
    """Trains a trial, inside ``with init() as context:``. ::

    with pytorch.init(hparams=hparams) as context:
        trainer = pytorch.Trainer(MyTrial(context), context)
        trainer.fit(max_length=pytorch.Epoch(10), latest_checkpoint=det.get_cluster_info().latest_checkpoint)
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        super().__init__(trial, context)

    def _loop(self, plan: Plan) -> Loop:
        assert isinstance(self._context, PyTorchTrialContext)
        return _PyTorchTrialController(self._trial, self._context, plan)

    def configure_profiler(
        self,
        sync_timings: bool = True,
        enabled: bool = False,
        begin_on_batch: int = 0,
        end_after_batch: Optional[int] = None,
    ) -> None:
        """Does nothing since Determined 0.38: use ``fit(profiling_enabled=True)``."""
        logger.error("configure_profiler() does nothing: use fit(profiling_enabled=True)")


@contextlib.contextmanager
def init(
    *,
    hparams: Optional[Dict[str, Any]] = None,
    exp_conf: Optional[Dict[str, Any]] = None,
    distributed: Optional[core.DistributedContext] = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
) -> Iterator[PyTorchTrialContext]:
    """The context in which a trial is built and trained.

    ``hparams``: on the cluster ``det.get_cluster_info().trial.hparams``. ``exp_conf``: a configuration for use outside the cluster;
    on it, the experiment's is taken. ``distributed``: the workers, outside the cluster; on it, the launcher says.
    ``aggregation_frequency``: batches whose gradients are summed up before the slots exchange them and optimizers step.
    ``enable_tensorboard_logging``: write reported metrics for TensorBoard as well.

    On the cluster the configuration's ``optimizations`` have their effect (``aggregation_frequency`` unless it is passed
    here), and all random generators are seeded with the trial's seed, the same on every slot.
    """
    initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
    with setting(exp_conf, distributed, _backend.initialize) as here:
        context = PyTorchTrialContext(
            core_context=here.core,
            trial_seed=here.seed,
            hparams=hparams,
            slots_per_trial=here.core.distributed.size,
            num_gpus=torch.cuda.device_count(),
            exp_conf=here.exp_conf,
            aggregation_frequency=aggregation_frequency,
            steps_completed=here.steps_completed,
            managed_training=True,
            debug_enabled=here.trial is not None and here.trial.trial._debug,
            enable_tensorboard_logging=enable_tensorboard_logging,
        )
        if here.trial is not None and here.exp_conf:
            context._optimize(here.exp_conf.get("optimizations") or {})
        yield context
    if not initialized and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
