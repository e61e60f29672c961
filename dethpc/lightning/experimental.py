"""Determined's logger for trainings that it does not manage: a Lightning script anywhere reports into the master."""

from __future__ import annotations

import functools
from typing import Any, Dict, Optional

from lightning.pytorch.loggers import logger as loggers
from lightning.pytorch.utilities import rank_zero_only

from dethpc import experimental
from dethpc.experimental import core_v2


class DetLogger(loggers.Logger):
    """Reports what Lightning logs as training metrics of an unmanaged experiment; the arguments are those of ``core_v2.init()``.

    On the cluster, use :class:`~determined.lightning.DeterminedCallback`.
    """

    def __init__(
        self,
        *,
        defaults: Optional[core_v2.DefaultConfig] = None,
        unmanaged: Optional[core_v2.UnmanagedConfig] = None,
        config: Optional[core_v2.Config] = None,
        client: Optional[experimental.Determined] = None,
    ) -> None:
        super().__init__()
        self._init = functools.partial(
            core_v2.init, defaults=defaults, unmanaged=unmanaged, config=config, client=client
        )
        self._initialized = False

    @property
    def name(self) -> str:
        return "DetLogger"

    @property
    def version(self) -> str:
        return "0.1"

    @property
    @loggers.rank_zero_experiment
    def experiment(self) -> None:
        """Nothing; the first look at it starts the reports."""
        if not self._initialized:
            self._initialized = True
            self._init()

    @rank_zero_only
    def log_metrics(self, metrics: Dict[str, float], step: Optional[int] = None) -> None:
        _ = self.experiment
        assert core_v2.train is not None
        core_v2.train.report_training_metrics(step or 0, metrics)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._initialized:
            self._initialized = False
            core_v2.close()
