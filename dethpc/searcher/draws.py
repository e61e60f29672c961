"""Where a method's new hyperparameters come from: the seed alone, or a sampler that learns from earlier trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dethpc.config.sections.hyperparameters import Space
from dethpc.config.sections.searcher import Sampler
from dethpc.searcher.sampling import sample


class Draws(Protocol):
    """A source of hyperparameters. ``created`` and ``learned`` remember, as a searcher's methods do."""

    def draw(self, index: int) -> dict[str, Any]:
        """Hyperparameters for trial ``index``. The same for the same seed, history and index."""
        ...

    def created(self, index: int, hparams: Mapping[str, Any]) -> None: ...

    def learned(self, index: int, value: float | None, step: int, full: bool) -> None:
        """The trial ended; ``value`` is the best that it reported, as a rank value; ``step`` how many rungs it reached."""
        ...


class SeededDraws:
    """Each trial's hyperparameters depend on the seed and its index alone."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def draw(self, index: int) -> dict[str, Any]:
        return sample(self._space, self._seed, index)

    def created(self, index: int, hparams: Mapping[str, Any]) -> None:
        pass

    def learned(self, index: int, value: float | None, step: int, full: bool) -> None:
        pass


def draws(sampler: Sampler | None, space: Space, seed: int) -> Draws:
    """The draws that a searcher section's ``sampler`` names; None: by the seed alone.

    Raises Refused when the sampler is not installed or not known.
    """
    if sampler is None:
        return SeededDraws(space, seed)
    from dethpc.searcher.optuna_draws import OptunaDraws

    return OptunaDraws(sampler, space, seed)


def try_out(sampler: Sampler | None, space: Space) -> None:
    """Raises Refused for a sampler that could not draw for a whole search."""
    if sampler is not None:
        from dethpc.searcher.optuna_draws import OptunaDraws

        OptunaDraws(sampler, space, 0).try_out()
