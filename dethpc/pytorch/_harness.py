"""A trial class trained by the experiment's configuration: what ``--trial`` and legacy entrypoints run."""

from __future__ import annotations

import logging
from typing import Any, Callable, ContextManager, Dict, Optional, Type

import dethpc
from dethpc.core._info import get_cluster_info
from dethpc.domain.trial_config import Length, TrialConfig
from dethpc.pytorch._training.fit import TrainerBase
from dethpc.pytorch._training.units import Batch, TrainUnit

logger = logging.getLogger("dethpc.pytorch")


def train(trial_class: Any, legacy: bool, init: Callable[..., ContextManager[Any]], trainer: Type[TrainerBase]) -> None:
    """``legacy``: the entrypoint names the class itself. ``init`` and ``trainer``: of that kind of trial."""
    info = get_cluster_info()
    assert info is not None
    settings = info.trial._settings
    logging.basicConfig(level=logging.DEBUG if info.trial._debug else logging.INFO, format=dethpc.LOG_FORMAT)
    if legacy:
        logger.warning(
            "an entrypoint that names a trial class is deprecated: let a script train it with pytorch.Trainer()"
        )
    with init(hparams=info.trial.hparams, exp_conf=info.trial._config) as context:
        context._set_is_pre_trainer()
        if context.distributed.rank > 0 and not info.trial._debug:
            logging.getLogger().setLevel(logging.WARNING)
        trial = trial_class(context)
        size = context._global_batch_size
        trainer(trial, context).fit(
            checkpoint_period=_period(settings.min_checkpoint_period, size),
            validation_period=_period(settings.min_validation_period, size),
            reporting_period=Batch(settings.scheduling_unit),
            checkpoint_policy=settings.checkpoint_policy,
            latest_checkpoint=info.latest_checkpoint,
            step_zero_validation=settings.perform_initial_validation,
            profiling_enabled=settings.profiling_enabled,
        )


def test_one_batch(
    trial_class: Any, config: Dict[str, Any], init: Callable[..., ContextManager[Any]], trainer: Type[TrainerBase]
) -> None:
    """Outside the cluster: see ``experimental.test_one_batch``."""
    hparams = TrialConfig.from_json(config).hyperparameters
    with init(hparams=hparams, exp_conf=config, enable_tensorboard_logging=False) as context:
        trainer(trial_class(context), context).fit(max_length=Batch(1), test_mode=True)


def _period(period: Optional[Length], size: Any) -> TrainUnit:
    """A bare number counts batches."""
    count, unit = period or Length(0)
    return TrainUnit._from_values(**{unit or "batches": count}, global_batch_size=size)
