"""The contract of a search method."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Union


class Exit(str, Enum):
    """How a trial left the search."""

    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"  # the searcher stopped it
    ERRORED = "ERRORED"
    INVALID_HP = "INVALID_HP"
    CANCELED = "CANCELED"


@dataclass(slots=True)
class Create:
    """Start trial number ``index`` (0-based) with these hyperparameters."""

    index: int
    hparams: dict[str, Any]
    search: dict[str, Any] = field(default_factory=dict)  # what to remember of it; comes back in ``created``
    source: int | None = None  # index of the trial whose latest checkpoint it continues from


@dataclass(slots=True)
class Stop:
    """Stop a trial; ``reason`` is shown to the user."""

    index: int
    reason: str


@dataclass(slots=True)
class Note:
    """Something about a trial to remember; comes back in ``noted``."""

    index: int
    kind: str
    data: dict[str, Any]


Action = Union[Create, Stop, Note]


class Searcher(ABC):
    """Decides which trials to run. Deciding and remembering are apart.

    ``start``, ``validated`` and ``exited`` decide: they read the searcher's state, never alter it, and return actions.
    ``created``, ``stopped``, ``noted`` and ``closed`` remember: they are called once for each action that was committed and
    each trial that ended, in order, also when a master starts again and folds what it finds in its database. A searcher's
    state is therefore a fold of recorded facts, and decisions are never taken twice.

    Every draw comes from ``random.Random(f"{seed}:{index}")``, so the same seed gives the same trials in whatever order
    results arrive. Not thread-safe; the engine calls from one thread.
    """

    def __init__(self, settings: Mapping[str, Any], hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.settings = settings
        self.hyperparameters = hyperparameters
        self.seed = seed
        self.smaller_is_better = bool(settings.get("smaller_is_better", True))
        self.created_count = 0
        self.closed_count = 0
        self.invalid_count = 0
        self._progress: dict[int, float] = {}  # of open trials

    # --- decide

    @abstractmethod
    def start(self) -> list[Action]:
        """The first trials."""

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        """Trial ``index`` reported the searcher's metric (perhaps NaN) after ``length`` units of training."""
        return []

    @abstractmethod
    def exited(self, index: int, how: Exit) -> list[Action]:
        """Trial ``index`` ended. Called after ``closed``."""

    @property
    @abstractmethod
    def total(self) -> int:
        """How many trials the search will have had at its end, as far as known now."""

    @property
    def progress(self) -> float:
        """Between 0 and 1."""
        total = max(self.total, self.created_count, 1)
        return min(1.0, (self.closed_count + sum(self._progress.values())) / total)

    # --- remember

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        self.created_count = max(self.created_count, index + 1)

    def stopped(self, index: int) -> None:
        """The stop of trial ``index`` was committed."""

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        """A Note was committed."""

    def closed(self, index: int, how: Exit) -> None:
        self.closed_count += 1
        self.invalid_count += how is Exit.INVALID_HP
        self._progress.pop(index, None)

    def advanced(self, index: int, progress: float) -> None:
        """Trial ``index`` says how far it is, between 0 and 1. Not recorded; only feeds ``progress``."""
        self._progress[index] = min(1.0, max(0.0, progress))

    # --- shared by methods

    def rank_value(self, metric: float) -> float:
        """The metric as a number to minimise; NaN ranks worst."""
        if math.isnan(metric):
            return math.inf
        return metric if self.smaller_is_better else -metric
