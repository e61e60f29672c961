"""``init()`` and the Trainer."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Dict, Iterator, List, Optional

import torch

from dethpc import core
from dethpc.core._info import ClusterInfo, get_cluster_info
from dethpc.core._searcher import _lengths, _parse_searcher_max_length, _parse_searcher_units
from dethpc.pytorch import _backend
from dethpc.pytorch._context import PyTorchTrialContext
from dethpc.pytorch._loop import Plan, endless
from dethpc.pytorch._trial import PyTorchTrial, _PyTorchTrialController
from dethpc.pytorch._units import Batch, Epoch, TrainUnit

logger = logging.getLogger("dethpc.pytorch")

TEST_MODE = "DETHPC_TEST_MODE"
"""Set by ``det experiment create --local --test-mode``: train one batch, validate, save."""


class Trainer:
    """Trains a trial, inside ``with init() as context:``. ::

    with pytorch.init(hparams=hparams) as context:
        trainer = pytorch.Trainer(MyTrial(context), context)
        trainer.fit(max_length=pytorch.Epoch(10), latest_checkpoint=det.get_cluster_info().latest_checkpoint)
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context

    def configure_profiler(
        self,
        sync_timings: bool = True,
        enabled: bool = False,
        begin_on_batch: int = 0,
        end_after_batch: Optional[int] = None,
    ) -> None:
        """Does nothing since Determined 0.38: use ``fit(profiling_enabled=True)``."""
        logger.error("configure_profiler() does nothing: use fit(profiling_enabled=True)")

    def fit(
        self,
        checkpoint_period: Optional[TrainUnit] = None,
        validation_period: Optional[TrainUnit] = None,
        max_length: Optional[TrainUnit] = None,
        reporting_period: TrainUnit = Batch(100),  # noqa: B008
        checkpoint_policy: str = "best",
        latest_checkpoint: Optional[str] = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> None:
        """Train until there were ``max_length`` batches or epochs in all, then validate and save a checkpoint.

        Periods are whole numbers or schedules, in batches or epochs. ``validation_period``, ``checkpoint_period``: never,
        unless given. ``reporting_period``: how often training metrics, averaged, and progress are reported.
        ``checkpoint_policy``: which validations lead to a checkpoint: "best" (better than any of the experiment before; off
        the cluster: all), "all", "none". ``latest_checkpoint``: go on from it. ``step_zero_validation``: validate before
        training. ``test_mode``: one batch of training and of validation, off the cluster. ``profiling_enabled``: report
        system metrics.

        Asked to stop, it saves a checkpoint after the batch that it is at, and returns. Raises ValueError without a
        ``max_length`` (which on the cluster may also stand in the searcher's section), TypeError when it is no whole number.
        """
        info = get_cluster_info()
        trial = info if info is not None and info.task_type == "TRIAL" else None
        if trial is not None and test_mode:
            raise ValueError("test_mode is for training off the cluster")
        test_mode = test_mode or bool(os.environ.get(TEST_MODE))
        if checkpoint_policy not in ("best", "all", "none"):
            raise ValueError(f'checkpoint_policy is "best", "all" or "none", not {checkpoint_policy!r}')
        plan = Plan(
            max_length=self._length(max_length, trial),
            validation_periods=[endless(validation_period), *self._targets(trial)],
            checkpoint_period=endless(checkpoint_period),
            reporting_period=reporting_period,
            checkpoint_policy="all" if trial is None and checkpoint_policy == "best" else checkpoint_policy,
            latest_checkpoint=latest_checkpoint,
            step_zero_validation=step_zero_validation,
            test_mode=test_mode,
            profiling_enabled=profiling_enabled,
        )
        if trial is None:
            if checkpoint_policy == "best":
                logger.warning('checkpoint_policy "best" is for the cluster: every validation leads to a checkpoint')
        else:
            if latest_checkpoint is None and trial.latest_checkpoint is not None:
                logger.warning(
                    "this trial has a checkpoint, and begins anew without it: pass "
                    "fit(latest_checkpoint=det.get_cluster_info().latest_checkpoint) to go on from it"
                )
            config = trial.trial._config
            searcher = config.get("searcher") or {}
            plan = plan._replace(
                searcher_metric=searcher.get("metric"),
                smaller_is_better=searcher.get("smaller_is_better") is not False,
                records_metric=searcher.get("time_metric") == "records",
                records_per_epoch=int(config.get("records_per_epoch") or 0),
            )
        _PyTorchTrialController(self._trial, self._context, plan).run()

    def _length(self, max_length: Optional[TrainUnit], info: Optional[ClusterInfo]) -> TrainUnit:
        config = info.trial._config if info is not None else {}
        if max_length is None and info is not None:
            length = _parse_searcher_max_length(config)
            if length is not None:
                unit = _parse_searcher_units(config)
                max_length = TrainUnit._from_searcher_unit(length, unit, self._context._global_batch_size)
        if max_length is None:
            raise ValueError("fit(max_length=...) is missing: Batch(n) or Epoch(n)")
        if not isinstance(max_length, (Batch, Epoch)) or not isinstance(max_length.value, int):
            raise TypeError(f"max_length is a Batch or an Epoch of a whole number, not {max_length!r}")
        _compare(max_length, config.get("searcher") or {})
        return max_length

    def _targets(self, info: Optional[ClusterInfo]) -> List[TrainUnit]:
        """Where the search compares trials, validations are due whatever the periods say."""
        if info is None or len(info.trial._search.get("lengths") or []) < 2:
            return []
        config = info.trial._config
        unit, size = _parse_searcher_units(config), self._context._global_batch_size
        if unit is None or (unit is core.Unit.RECORDS and not size):
            return []
        found = [TrainUnit._from_searcher_unit(n, unit, size) for n in _lengths(config, info.trial._search)]
        return [type(found[0])([one.value for one in found if isinstance(one.value, int)])]


def _compare(max_length: TrainUnit, searcher: Dict[str, Any]) -> None:
    """A search that compares trials by time reckons with its own full length."""
    unit, length = searcher.get("time_metric"), searcher.get("max_time")
    kind = {"batches": Batch, "epochs": Epoch}.get(unit or "")
    if kind is not None and (not isinstance(max_length, kind) or max_length.value != length):
        logger.warning(
            "fit() trains %r, and the search reckons with searcher.max_time: %s %s", max_length, length, unit
        )


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

    ``hparams``: on the cluster ``det.get_cluster_info().trial.hparams``. ``exp_conf``: a configuration for use off the cluster;
    on it, the experiment's is taken. ``distributed``: the workers, off the cluster; on it, the launcher says.
    ``aggregation_frequency``: batches whose gradients are summed up before the slots exchange them and optimizers step.
    ``enable_tensorboard_logging``: write reported metrics for TensorBoard as well.

    On the cluster the configuration's ``optimizations`` have their effect (``aggregation_frequency`` unless it is passed
    here), and all random generators are seeded with the trial's seed, the same on every slot.
    """
    info = get_cluster_info()
    on_cluster = info is not None and info.task_type == "TRIAL"
    initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
    seed, steps = None, 0
    if info is not None and on_cluster:
        distributed = _backend.initialize()
        seed, steps, exp_conf = info.trial.trial_seed, info.trial._steps_completed, info.trial._config
        _backend.set_seeds(seed)
    elif distributed is None and (_backend.uses_torch() or _backend.uses_horovod()):
        distributed = _backend.initialize()
    with core.init(
        distributed=distributed,
        preempt_mode=core.PreemptMode.WorkersAskChief,
        tensorboard_mode=core.TensorboardMode.MANUAL,
    ) as core_context:
        context = PyTorchTrialContext(
            core_context=core_context,
            trial_seed=seed,
            hparams=hparams,
            slots_per_trial=core_context.distributed.size,
            num_gpus=torch.cuda.device_count(),
            exp_conf=exp_conf,
            aggregation_frequency=aggregation_frequency,
            steps_completed=steps,
            managed_training=True,
            debug_enabled=info is not None and on_cluster and info.trial._debug,
            enable_tensorboard_logging=enable_tensorboard_logging,
        )
        if on_cluster and exp_conf:
            context._optimize(exp_conf.get("optimizations") or {})
        yield context
    if not initialized and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
