"""Random search (Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13, 2012)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dethpc.searcher.base import Action, Create, Exit, Searcher
from dethpc.searcher.sampling import parse_space, sample

# A space in which nothing is valid must not be sampled for ever.
MAX_INVALID_PER_TRIAL = 10


class RandomSearch(Searcher):
    """``max_trials`` independent draws, at most ``max_concurrent_trials`` at a time. Invalid draws are replaced."""

    def __init__(self, settings: Mapping[str, Any], hyperparameters: Mapping[str, Any], seed: int) -> None:
        super().__init__(settings, hyperparameters, seed)
        self._space = parse_space(hyperparameters)
        self._max_trials = int(settings["max_trials"])
        self._max_concurrent = int(settings.get("max_concurrent_trials") or 16)

    def start(self) -> list[Action]:
        return [self._create(i) for i in range(min(self._max_trials, self._max_concurrent))]

    def exited(self, index: int, how: Exit) -> list[Action]:
        return [self._create(self.created_count)] if self.created_count < self.total else []

    @property
    def total(self) -> int:
        return self._max_trials + min(self.invalid_count, MAX_INVALID_PER_TRIAL * self._max_trials)

    def _create(self, index: int) -> Create:
        return Create(index, sample(self._space, self.seed, index))
