"""Summaries of metrics: what a table of trials shows without reading every report.

A summary is a fold over the reports that count, in order of report. So taking in one more report is one step, and the
summary after steps equals the summary made again from all values.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from dethpc.domain.facts import Metric

Key = tuple[int, str, str]
"""Trial id, group, name of the metric."""


@dataclass(slots=True)
class Summary:
    """All values of one metric of a trial.

    ``type`` is number, string, boolean, array, object or null; "string" also when reports differ in type. ``sum``, ``min``
    and ``max`` are for numbers alone; ``min`` and ``max`` leave NaN out. ``last`` is the value with the most steps, the later
    report among equals.
    """

    trial_id: int
    group: str
    name: str
    type: str
    count: int
    sum: float | None
    min: float | None
    max: float | None
    last: Any
    last_steps: int

    @property
    def key(self) -> Key:
        return (self.trial_id, self.group, self.name)

    @property
    def mean(self) -> float | None:
        return None if self.sum is None else self.sum / self.count


def fold(summaries: MutableMapping[Key, Summary], metrics: Iterable[Metric]) -> None:
    """Take reports, in order, into ``summaries``."""
    for metric in metrics:
        steps = metric.steps_completed
        for name, value in metric.metrics.items():
            kind = type_of(value)
            number = _float(value) if kind == "number" else None
            key = (metric.trial_id, metric.group, name)
            summary = summaries.get(key)
            if summary is None:
                bound = number if number == number else None
                summaries[key] = Summary(*key, kind, 1, number, bound, bound, value, steps)
                continue
            summary.count += 1
            if summary.type != kind:
                summary.type = "string"
                summary.sum = summary.min = summary.max = None
            elif number is not None and summary.sum is not None:
                summary.sum += number
                if number == number:
                    summary.min = number if summary.min is None or number < summary.min else summary.min
                    summary.max = number if summary.max is None or number > summary.max else summary.max
            if steps >= summary.last_steps:
                summary.last, summary.last_steps = value, steps


def type_of(value: Any) -> str:
    """The JSON type of a value. Raises TypeError for what JSON cannot hold."""
    for python, name in _TYPES:
        if isinstance(value, python):
            return name
    raise TypeError(f"a metric cannot be a {type(value).__name__}")


_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    ((int, float), "number"),
    (str, "string"),
    (type(None), "null"),
    ((list, tuple), "array"),
    (dict, "object"),
)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return float("inf") if value > 0 else float("-inf")
