"""Reports of a Trainer's logged values: one per group of metrics and step, however many calls logged them."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from dethpc import core
from dethpc.domain.trial_config import SearcherConfig
from dethpc.transformers._search import check_metrics


class Reports:
    """Gathers what is logged, and sends it when its step is over. ``training``: a training is under way.

    A Trainer logs some values twice at one step, the means of the whole training among them: what was sent with the same value is
    not sent again. After the training the model may be another one than the step's, the best of all, so that no value of a step is
    replaced then.
    """

    def __init__(self, core_context: core.Context, searcher: Optional[SearcherConfig]) -> None:
        self._core, self._searcher = core_context, searcher
        self._gathered: Dict[str, Tuple[int, Dict[str, Any]]] = {}  # by group: the step and its values
        self._sent: Dict[str, Tuple[int, Dict[str, Any]]] = {}
        self.training = False

    def add(self, group: str, step: int, epoch: Optional[float], metrics: Dict[str, Any]) -> None:
        if self._gathered.get(group, (step, {}))[0] != step:
            self._send(group)
        values = self._gathered.setdefault(group, (step, {}))[1]
        values.update({"batches": step, "epochs": epoch, **metrics})

    def evaluated(self, metrics: Dict[str, Any]) -> None:
        """The evaluation that logged ``metrics`` is over, which may have given them a prefix of its own."""
        step, values = self._gathered.get("training", (0, {}))
        if moved := {name: values.pop(name) for name in metrics if name in values}:
            self.add("validation", step, values.get("epochs"), moved)
        if not self.training:
            self.send()

    def send(self) -> None:
        """Raises MetricMissing when an evaluation of the training lacks what the search compares trials by."""
        for group in list(self._gathered):
            self._send(group)

    def _send(self, group: str) -> None:
        step, values = self._gathered.pop(group)
        before, sent = self._sent.get(group, (step, {}))
        earlier = sent if before == step else {}
        new = {
            name: value
            for name, value in values.items()
            if name not in earlier or (self.training and repr(earlier[name]) != repr(value))
        }
        if not new.keys() - {"batches", "epochs"}:
            return
        merged = {**earlier, **values}
        if group == "validation" and self._searcher is not None and self.training:
            check_metrics(self._searcher, merged)
        self._sent[group] = step, merged
        self._core.train.report_metrics(group, step, {"batches": step, "epochs": merged["epochs"], **new})
