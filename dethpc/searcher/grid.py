"""Grid search."""

from __future__ import annotations

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Space
from dethpc.searcher.base import Action, Create, Exit, Searcher
from dethpc.searcher.sampling import grid


class GridSearch(Searcher):
    """Every point of the grid that the hyperparameters span, at most ``max_concurrent_trials`` at a time (0: all).

    Invalid points are left out; there is nothing to put in their place.
    """

    def __init__(self, section: config.Grid, space: Space, seed: int) -> None:
        super().__init__(section, space, seed)
        self._points = grid(space)
        self._max_concurrent = section.max_concurrent_trials or len(self._points)

    def start(self) -> list[Action]:
        return [self._create(i) for i in range(min(len(self._points), self._max_concurrent))]

    def exited(self, index: int, how: Exit) -> list[Action]:
        return [self._create(self.created_count)] if self.created_count < len(self._points) else []

    @property
    def total(self) -> int:
        return len(self._points)

    def _create(self, index: int) -> Create:
        return Create(index, self._points[index])
