"""The contract of a search method."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Union

from dethpc.config.sections.hyperparameters import Space
from dethpc.config.sections.searcher import Method

MAX_INVALID_PER_TRIAL = 10
"""How many times an invalid draw is replaced, per trial asked for: a space without a valid point must not be sampled for ever."""


class Exit(str, Enum):
    """How a trial left the search. One that the searcher stopped has COMPLETED."""

    COMPLETED = "COMPLETED"
    ERRORED = "ERRORED"
    INVALID_HP = "INVALID_HP"
    CANCELED = "CANCELED"


@dataclass(slots=True)
class Create:
    """Start trial number ``index`` (0-based) with these hyperparameters.

    ``search`` is what to remember of the trial; it comes back in ``created``. ``search["lengths"]`` are the lengths at which it
    shall report the metric, in the searcher's unit; a trial whose last one is reached waits, or is stopped.
    """

    index: int
    hparams: dict[str, Any]
    search: dict[str, Any] = field(default_factory=dict)
    source: int | None = None  # index of the trial whose latest checkpoint it continues from


@dataclass(slots=True)
class Stop:
    """End a trial; ``reason`` is shown to the user."""

    index: int
    reason: str


@dataclass(slots=True)
class Wait:
    """The trial has trained as long as it may for now: it checkpoints, gives its slots back and waits for Continue or Stop.

    Its reports do not reach the searcher while it waits. ``parked`` is called once its run has ended.
    """

    index: int
    reason: str


@dataclass(slots=True)
class Continue:
    """Train the trial until ``length`` in all; one that waits goes on from its checkpoint.

    ``through``: smaller lengths at which it shall report the metric on the way.
    """

    index: int
    length: float
    reason: str = ""
    through: tuple[float, ...] = ()


@dataclass(slots=True)
class Note:
    """Something about a trial to remember; comes back in ``noted``. ``data`` is JSON: no NaN, no infinity."""

    index: int
    kind: str
    data: dict[str, Any]


Action = Union[Create, Stop, Wait, Continue, Note]


class Searcher(ABC):
    """Decides which trials to run. Deciding and remembering are apart.

    ``start``, ``validated``, ``parked`` and ``exited`` decide: they read the searcher's state, never alter it, and return
    actions, at most one Stop, Wait or Continue for each trial. ``created``, ``noted`` and ``closed`` remember: they are called
    once for each action that was committed and each trial that ended, even when a master starts again and folds what it finds
    in its database. A searcher's state is therefore a fold of recorded facts, and decisions are never taken twice.

    In a fold the order is: every ``created`` by index, every ``noted`` as it happened, every ``closed`` by index. As they
    happened, these calls were mixed, each trial's own in the order created, noted, closed. Both orders give the same state.

    Every draw comes from ``random.Random(f"{seed}:{index}")``, so the same seed gives the same trials in whatever order
    results arrive. Not thread-safe; the engine calls from one thread.
    """

    def __init__(self, section: Method, space: Space, seed: int) -> None:
        self.method = section.name
        self.metric = section.metric
        self.smaller_is_better = section.smaller_is_better
        self.seed = seed
        self._space = space
        self.created_count = 0
        self.closed_count = 0
        self.invalid_count = 0
        self._progress: dict[int, float] = {}  # of open trials, where it is not 0
        self._progress_sum = 0.0

    # --- decide

    @abstractmethod
    def start(self) -> list[Action]:
        """The first trials."""

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        """Trial ``index``, which is neither waiting nor ending, reported the searcher's metric (perhaps NaN) after ``length``."""
        return []

    def parked(self, index: int) -> list[Action]:
        """Trial ``index`` waits and its run has ended: its latest checkpoint is the one to go on from, or to copy."""
        return []

    @abstractmethod
    def exited(self, index: int, how: Exit) -> list[Action]:
        """Trial ``index`` ended. Called after ``closed``."""

    @property
    @abstractmethod
    def total(self) -> int:
        """How many trials the search will have had at its end, as far as known now."""

    @property
    def over(self) -> bool:
        """Whether the search has ended when no trial is open."""
        return True

    @property
    def progress(self) -> float:
        """Between 0 and 1."""
        total = max(self.total, self.created_count, 1)
        return min(1.0, max(0.0, (self.closed_count + self._progress_sum) / total))

    def progress_at(self, trained: float, before: float) -> float:
        """Of a search that ends before it is over: ``trained`` is the sum of what its trials trained, 1 for each that completed,
        ``before`` the last ``progress``. (To that, one that failed or was killed is done with.)"""
        return min(1.0, trained / max(self.total, self.created_count, 1))

    @property
    def shortcoming(self) -> str:
        """Why a search that has ended could not compare its trials as it should, in words; "" when it could."""
        return ""

    def describe(self, most: int | None = None) -> dict[str, Any]:
        """The state of the search as JSON, to be shown: trials counted, and for methods with rungs who stands where.

        ``brackets`` is a list of ``{"rungs": [{"length", "entered", "went_on", "cut_off", "trials": [{"index", "value",
        "went_on"}]}]}``: values are in the metric's own sign, null where the trial had none that can be compared; trials are best
        first, no more than ``most``.
        """
        return {
            "method": self.method,
            "metric": self.metric,
            "smaller_is_better": self.smaller_is_better,
            "trials": {
                "total": self.total,
                "created": self.created_count,
                "ended": self.closed_count,
                "invalid": self.invalid_count,
            },
            "progress": self.progress,
            "brackets": [],
        }

    # --- remember

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        self.created_count = max(self.created_count, index + 1)

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        """A Note was committed."""

    def closed(self, index: int, how: Exit, best: float | None = None) -> None:
        """The trial's end was committed. ``best`` is the best value of the metric that it reported, if any."""
        self.closed_count += 1
        self.invalid_count += how is Exit.INVALID_HP
        self._progress_sum -= self._progress.pop(index, 0.0)

    def advanced(self, index: int, progress: float) -> None:
        """Trial ``index`` says how far it is, between 0 and 1. Not recorded; only feeds ``progress``."""
        if progress or index in self._progress:
            self._progress_sum += progress - self._progress.get(index, 0.0)
            self._progress[index] = progress

    # --- shared by methods

    def rank_value(self, metric: float) -> float:
        """The metric as a number to minimise. What cannot be compared (NaN, infinities) ranks worst, as infinity."""
        if not math.isfinite(metric):
            return math.inf
        return metric if self.smaller_is_better else -metric

    def own_sign(self, rank_value: float) -> float | None:
        """The metric that a rank value stands for; None for one that cannot be compared."""
        if math.isinf(rank_value):
            return None
        return rank_value if self.smaller_is_better else -rank_value

    def show(self, rank_value: float) -> str:
        """``loss 0.25``, in the metric's own sign."""
        value = self.own_sign(rank_value)
        return f"no usable {self.metric}" if value is None else f"{self.metric} {value:.6g}"


def recorded(rank_value: float) -> float | None:
    """A rank value as JSON can hold it."""
    return None if math.isinf(rank_value) else rank_value


def recalled(value: float | None) -> float:
    return math.inf if value is None else float(value)
