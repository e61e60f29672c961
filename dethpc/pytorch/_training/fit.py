"""Shared by all trainers: makes a plan of the arguments of ``fit()`` and the configuration, and the setting for it."""

from __future__ import annotations

import abc
import contextlib
import logging
import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from dethpc import core
from dethpc.core._info import ClusterInfo, get_cluster_info
from dethpc.core._searcher import _lengths, _unit
from dethpc.domain.trial_config import SearcherConfig
from dethpc.pytorch import _backend
from dethpc.pytorch._training.due import endless
from dethpc.pytorch._training.loop import Loop, Plan
from dethpc.pytorch._training.units import Batch, Epoch, TrainUnit
from dethpc.pytorch._trial_context import _TrialContext

logger = logging.getLogger("dethpc.pytorch")

TEST_MODE = "DETHPC_TEST_MODE"
"""Set by ``det experiment create --local --test-mode``: train one batch, validate, save."""


class TrainerBase(abc.ABC):
    """Trains a trial, inside ``with init() as context:``."""

    def __init__(self, trial: Any, context: _TrialContext) -> None:
        self._trial = trial
        self._context = context

    @abc.abstractmethod
    def _loop(self, plan: Plan) -> Loop:
        """What trains this kind of trial."""

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
        unless given. ``reporting_period``: after how much training the training metrics, averaged, and progress are reported.
        ``checkpoint_policy``: which validations lead to a checkpoint: "best" (better than any of the experiment before; off
        the cluster: all), "all", "none". ``latest_checkpoint``: go on from it. ``step_zero_validation``: validate before
        training. ``test_mode``: one batch of training and of validation, outside the cluster. ``profiling_enabled``: report
        system metrics.

        Asked to stop, it saves a checkpoint after the batch that it is at, and returns. Raises ValueError without a
        ``max_length`` (which on the cluster may also be in the searcher's section), TypeError when it is no whole number.
        """
        info = get_cluster_info()
        trial = info if info is not None and info.task_type == "TRIAL" else None
        if trial is not None and test_mode:
            raise ValueError("test_mode is for training outside the cluster")
        test_mode = test_mode or bool(os.environ.get(TEST_MODE))
        if checkpoint_policy not in ("best", "all", "none"):
            raise ValueError(f'checkpoint_policy is "best", "all" or "none", not {checkpoint_policy!r}')
        plan = Plan(
            max_length=self._length(max_length, trial),
            validation_periods=[endless(validation_period), *self._comparisons(trial)],
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
                    "this trial has a checkpoint, and starts from scratch without it: pass "
                    "fit(latest_checkpoint=det.get_cluster_info().latest_checkpoint) to go on from it"
                )
            settings = trial.trial._settings
            searcher = settings.searcher
            plan = plan._replace(
                searcher_metric=searcher.metric or None,
                smaller_is_better=searcher.smaller_is_better,
                records_metric=searcher.time_metric == "records",
                records_per_epoch=settings.records_per_epoch,
            )
        self._loop(plan).run()

    def _length(self, max_length: Optional[TrainUnit], info: Optional[ClusterInfo]) -> TrainUnit:
        searcher = None if info is None else info.trial._settings.searcher
        if max_length is None and info is not None:
            targets = self._targets(info)
            max_length = targets[-1] if targets else None
        if max_length is None:
            raise ValueError(
                "nothing says how long to train: set searcher.max_length in the configuration, or call "
                "fit(max_length=Batch(n) or Epoch(n))"
            )
        if not isinstance(max_length, (Batch, Epoch)) or not isinstance(max_length.value, int):
            raise TypeError(f"max_length is a Batch or an Epoch of a whole number, not {max_length!r}")
        if searcher is not None:
            _compare(max_length, searcher)
        return max_length

    def _targets(self, info: ClusterInfo) -> List[TrainUnit]:
        """The lengths at which the search wants the trial's metric, increasing; none where only the training code knows them.

        A population, a halving that promotes and a custom search let the trial train until the last one, and perhaps continue it
        later. Raises ValueError for lengths that are bare numbers: they may be of any unit.
        """
        searcher, search = info.trial._settings.searcher, info.trial._search
        unit, lengths = _unit(searcher), _lengths(searcher, search)
        if searcher.name == "custom":
            unit = unit or core.Unit.BATCHES
        elif unit is None and searcher.time_metric:
            return []  # measured by a metric of the user's own
        size = self._context._global_batch_size
        return [TrainUnit._from_searcher_unit(length, unit, size) for length in lengths]

    def _comparisons(self, info: Optional[ClusterInfo]) -> List[TrainUnit]:
        """Where the search compares trials, validations are due whatever the periods say."""
        if info is None or not info.trial._search.get("lengths"):
            return []
        try:
            targets = self._targets(info)
        except ValueError:  # the lengths of fit() count then
            return []
        values = [target.value for target in targets if isinstance(target.value, int)]
        return [type(targets[0])(values)] if targets else []


def _compare(max_length: TrainUnit, searcher: SearcherConfig) -> None:
    """A search that compares trials by time reckons with its own full length."""
    unit, length = searcher.time_metric, searcher.max_time
    kind = {"batches": Batch, "epochs": Epoch}.get(unit or "")
    if kind is not None and (not isinstance(max_length, kind) or max_length.value != length):
        logger.warning(
            "fit() trains %r, and the search reckons with searcher.max_time: %s %s", max_length, length, unit
        )


class Setting(NamedTuple):
    """Where a training takes place."""

    core: core.Context
    seed: Optional[int]
    steps_completed: int
    exp_conf: Optional[Dict[str, Any]]
    trial: Optional[ClusterInfo]  # None outside the cluster


@contextlib.contextmanager
def setting(
    exp_conf: Optional[Dict[str, Any]],
    distributed: Optional[core.DistributedContext],
    initialize: Callable[[], Optional[core.DistributedContext]],
) -> Iterator[Setting]:
    """``initialize`` meets the other workers; outside the cluster only unless the caller has done so (``distributed``).

    On the cluster all random generators are seeded with the trial's seed, the same on every slot.
    """
    info = get_cluster_info()
    trial = info if info is not None and info.task_type == "TRIAL" else None
    seed, steps = None, 0
    if trial is not None or distributed is None:
        distributed = initialize()
    if trial is not None:
        seed, steps, exp_conf = trial.trial.trial_seed, trial.trial._steps_completed, trial.trial._config
        _backend.set_seeds(seed)
    with core.init(
        distributed=distributed,
        preempt_mode=core.PreemptMode.WorkersAskChief,
        tensorboard_mode=core.TensorboardMode.MANUAL,
    ) as core_context:
        yield Setting(core_context, seed, steps, exp_conf, trial)
