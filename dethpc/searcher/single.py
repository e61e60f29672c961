"""One trial, no search."""

from __future__ import annotations

from dethpc.searcher.base import Action, Create, Exit, Searcher
from dethpc.searcher.sampling import sample


class SingleSearch(Searcher):
    """Trains one trial with the given hyperparameters."""

    def start(self) -> list[Action]:
        return [Create(0, sample(self._space, self.seed, 0))]

    def exited(self, index: int, how: Exit) -> list[Action]:
        return []

    @property
    def total(self) -> int:
        return 1
