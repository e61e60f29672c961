"""The checkpoint policy: which validations are followed by a checkpoint."""

from __future__ import annotations

import logging
import time
from typing import Optional

from dethpc.core import TrainContext
from dethpc.domain.text.hints import without_metric
from dethpc.errors import DethpcError, MetricMissing
from dethpc.pytorch._training.metrics import Metrics

logger = logging.getLogger("dethpc.pytorch")

ASK_AGAIN = 60.0  # seconds, after the master did not answer


class CheckpointPolicy:
    """``name``: "best", "all" or "none". "best" compares with the best validation of the whole experiment, or with this
    trial's own best while the master does not answer."""

    def __init__(self, train: TrainContext, name: str, metric: Optional[str], smaller_is_better: bool) -> None:
        self._train, self._name, self._metric, self._smaller_is_better = train, name, metric, smaller_is_better
        self._best: Optional[float] = None
        self._ask_again_at = float("-inf")

    def wants(self, metrics: Metrics) -> bool:
        """Whether a validation with these metrics is to be saved. Ask before it is reported: it would count among the best itself.

        Raises MetricMissing when the searcher's metric is missing or is no number."""
        if self._name != "best":
            return self._name == "all"
        name = str(self._metric)
        if problem := without_metric(name, "metric", metrics):
            raise MetricMissing(problem)
        now = float(metrics[name])
        reported = self._best_of_experiment()
        before = self._best if reported is None else reported
        better = before is None or (now < before if self._smaller_is_better else now > before)
        if better:
            self._best = now
        return better

    def _best_of_experiment(self) -> Optional[float]:
        """None when there is none, or when the master does not answer: then it is not asked again for a while, as asking takes
        seconds."""
        if time.monotonic() < self._ask_again_at:
            return None
        try:
            return self._train.get_experiment_best_validation()
        except DethpcError as error:
            self._ask_again_at = time.monotonic() + ASK_AGAIN
            logger.warning("the experiment's best validation is unknown (%s): comparing with this trial's own", error)
            return None
