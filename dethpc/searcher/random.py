"""Random search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Space
from dethpc.searcher.base import MAX_INVALID_PER_TRIAL, Action, Create, Exit, Searcher
from dethpc.searcher.draws import draws


class RandomSearch(Searcher):
    """``max_trials`` draws, at most ``max_concurrent_trials`` at a time (0: all). Invalid draws are replaced.

    Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13, 2012.
    """

    def __init__(self, section: config.Random, space: Space, seed: int) -> None:
        super().__init__(section, space, seed)
        self._draws = draws(section.sampler, space, seed)
        self._max_trials = section.max_trials
        self._max_concurrent = section.max_concurrent_trials or self._max_trials

    def start(self) -> list[Action]:
        return [self._create(i) for i in range(min(self._max_trials, self._max_concurrent))]

    def exited(self, index: int, how: Exit) -> list[Action]:
        return [self._create(self.created_count)] if self.created_count < self.total else []

    @property
    def total(self) -> int:
        return self._max_trials + min(self.invalid_count, MAX_INVALID_PER_TRIAL * self._max_trials)

    def _create(self, index: int) -> Create:
        return Create(index, self._draws.draw(index))

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        super().created(index, hparams, search)
        self._draws.created(index, hparams)

    def closed(self, index: int, how: Exit, best: float | None = None) -> None:
        super().closed(index, how, best)
        self._draws.learned(index, None if best is None else self.rank_value(best), 0, True)
