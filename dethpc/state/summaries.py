"""Summaries of metrics and of runs: what a table shows without reading every report and attempt.

A summary of a metric is a fold over the reports that count, in order of report. So taking in one more report is one step, and the
summary after steps equals the summary made again from all values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from dethpc.domain.facts import Metric
from dethpc.domain.not_finite import as_float

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


@dataclass(slots=True)
class Best:
    """A validation that was the best of its experiment when it was reported: a line of the experiment's history.

    The metric is the searcher's. What is no finite number is never the best. Identified as the report that it came from.
    """

    run_id: str
    attempt: int
    seq: int
    experiment_id: int
    trial_id: int
    reported_at: float
    value: float


@dataclass(slots=True)
class MetricName:
    """A metric that some trial of the experiment has a summary of."""

    experiment_id: int
    group: str
    name: str


@dataclass(slots=True)
class Spent:
    """Where the slots of a run that has ended went, in slot-seconds: what ``domain.goodput`` says of its row and its attempts."""

    run_id: str
    experiment_id: int
    trial_id: int
    pool: str
    ended_at: float
    useful: float
    lost: float
    overhead: float
    waiting: float


@dataclass(slots=True)
class SpentSum:
    """What the runs of an experiment that have ended spent together."""

    experiment_id: int
    useful: float = 0.0
    lost: float = 0.0
    overhead: float = 0.0
    waiting: float = 0.0


@dataclass(slots=True)
class StoredSum:
    """How many checkpoints an experiment has, their bytes together, and how many of them are not deleted."""

    experiment_id: int
    count: int = 0
    size: int = 0
    kept: int = 0


def bests(validations: Iterable[Best], smaller_is_better: bool, before: float | None = None) -> list[Best]:
    """Those that were the best when they were reported, of ``validations`` in order of report. ``before``: the best until then."""
    history = []
    for each in validations:
        if before is None or (each.value < before if smaller_is_better else each.value > before):
            history.append(each)
            before = each.value
    return history


def usable(value: Any) -> float | None:
    """A metric's value as one that can be the best; None: it cannot."""
    if not isinstance(value, (int, float)):
        return None
    number = as_float(value)
    return number if math.isfinite(number) else None


def fold(summaries: MutableMapping[Key, Summary], metrics: Iterable[Metric]) -> list[Summary]:
    """Take reports, in order, into ``summaries``. Returns those that they changed.

    Raises TypeError for what JSON cannot hold; some of the reports are taken in then.
    """
    changed: dict[Key, Summary] = {}
    for metric in metrics:
        steps = metric.steps_completed
        for name, value in metric.metrics.items():
            kind = _NAMES.get(type(value)) or type_of(value)
            number = as_float(value) if kind == "number" else None
            key = (metric.trial_id, metric.group, name)
            summary = changed.get(key) or summaries.get(key)
            if summary is None:
                bound = number if number == number else None
                summary = Summary(*key, kind, 1, number, bound, bound, value, steps)
                summaries[key] = changed[key] = summary
                continue
            changed[key] = summary
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
    return list(changed.values())


class Recent:
    """The summaries of trials that reported lately, as the database has them: taking in a report reads nothing then.

    For whoever writes the database alone. ``most`` summaries are kept, of the trials that reported last, and none of one that has
    ended. What a transaction that failed did to them nobody knows: ``forget`` them all. ``whole`` are runs
    all of whose reports count.
    """

    def __init__(self, most: int = 20_000) -> None:
        self._most, self._kept = most, 0
        self.whole: set[str] = set()
        self._by_trial: dict[int, dict[Key, Summary]] = {}  # who reported last comes last

    def __len__(self) -> int:
        return self._kept

    def take(self, trial_id: int) -> dict[Key, Summary] | None:
        """Those of a trial, which are to be kept again after they were changed. None: ask the database."""
        taken = self._by_trial.pop(trial_id, None)
        if taken is not None:
            self._kept -= len(taken)
        return taken

    def keep(self, trial_id: int, summaries: dict[Key, Summary]) -> None:
        self.take(trial_id)
        self._by_trial[trial_id] = summaries
        self._kept += len(summaries)
        while self._kept > self._most:
            self.take(next(iter(self._by_trial)))
        if len(self.whole) > self._most:
            self.whole.clear()

    def forget(self) -> None:
        self._by_trial.clear()
        self.whole.clear()
        self._kept = 0


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


_NAMES = {float: "number", int: "number", bool: "boolean", str: "string"}
"""Of the types that nearly all values have."""
