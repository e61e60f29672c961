"""Drawing hyperparameters from their space, and laying grids over it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from dethpc.config.sections.hyperparameters import Categorical, Const, Double, Int, Log, Space


def sample(space: Space, seed: int, index: int) -> dict[str, Any]:
    """One draw for trial ``index``. Names are visited in sorted order, so that their order in the file does not matter."""
    return _sample(space, random.Random(f"{seed}:{index}"))


def _sample(space: Space, rng: random.Random) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    for name in sorted(space):
        hp = space[name]
        drawn[name] = _sample(hp, rng) if isinstance(hp, Mapping) else draw(hp, rng)
    return drawn


def draw(hp: Any, rng: random.Random) -> Any:
    """One value of one hyperparameter."""
    if isinstance(hp, Const):
        return hp.val
    if isinstance(hp, Categorical):
        return rng.choice(hp.vals)
    if isinstance(hp, Int):
        return rng.randint(hp.minval, hp.maxval)
    if isinstance(hp, Double):
        return rng.uniform(hp.minval, hp.maxval)
    assert isinstance(hp, Log)
    return hp.base ** rng.uniform(hp.minval, hp.maxval)


def grid(space: Space) -> list[dict[str, Any]]:
    """Every point of the grid, the last name (in sorted order) varying fastest.

    ``int`` axes with fewer integers than ``count`` give each integer once; a ``count`` of 1 gives the middle.
    """
    names = [path for path, _ in _leaves(space, ())]
    axes = [_axis(hp) for _, hp in _leaves(space, ())]
    return [_nest(dict(zip(names, values, strict=True))) for values in itertools.product(*axes)]


def _leaves(space: Space, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in sorted(space):
        hp = space[name]
        if isinstance(hp, Mapping) and hp:
            yield from _leaves(hp, (*path, name))
        else:
            yield (*path, name), hp


def _axis(hp: Any) -> list[Any]:
    if isinstance(hp, Mapping):
        return [{}]  # one that holds nothing: training code reads it all the same
    if isinstance(hp, Const):
        return [hp.val]
    if isinstance(hp, Categorical):
        return list(hp.vals)
    assert hp.count is not None  # the config room asks for it where the method is grid
    if isinstance(hp, Int):
        count = min(hp.count, hp.maxval - hp.minval + 1)
        return [round(x) for x in _linspace(hp.minval, hp.maxval, count)]
    points = [float(x) for x in _linspace(hp.minval, hp.maxval, hp.count)]
    return [hp.base**x for x in points] if isinstance(hp, Log) else points


def _linspace(low: float, high: float, count: int) -> list[Fraction]:
    """Exact between the bounds as they are written: 0.1 is a tenth, and integers beyond 2**53 are themselves."""
    first, last = Fraction(repr(low)), Fraction(repr(high))
    if count == 1:
        return [(first + last) / 2]
    return [first + (last - first) * i / (count - 1) for i in range(count)]


def _nest(flat: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        level = nested
        for name in path[:-1]:
            level = level.setdefault(name, {})
        level[path[-1]] = value
    return nested
