"""Hyperparameter spaces: constants, ranges and choices, nested to any depth. How to draw from them is the searcher's business."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Union

from dethpc.config.sections.section import LARGEST
from dethpc.config.wording import did_you_mean, show
from dethpc.errors import ConfigError, Path, Problem


@dataclass(frozen=True)
class Const:
    """The same value in every trial."""

    val: Any


@dataclass(frozen=True)
class Categorical:
    """One of ``vals``; any YAML values."""

    vals: tuple[Any, ...]


@dataclass(frozen=True)
class Double:
    """A real number from ``minval`` to ``maxval``; ``count`` points of it in a grid."""

    minval: float
    maxval: float
    count: int | None = None


@dataclass(frozen=True)
class Int:
    """A whole number from ``minval`` to ``maxval``, both included; ``count`` points of it in a grid."""

    minval: int
    maxval: int
    count: int | None = None


@dataclass(frozen=True)
class Log:
    """``base ** x`` with x from ``minval`` to ``maxval``; ``count`` points, even in x, of it in a grid."""

    minval: float
    maxval: float
    base: float
    count: int | None = None


Hyperparameter = Union[Const, Categorical, Double, Int, Log]
Space = dict[str, Union[Hyperparameter, "Space"]]

TYPES: dict[str, type[Any]] = {"const": Const, "categorical": Categorical, "double": Double, "int": Int, "log": Log}


def parse_space(raw: Mapping[str, Any]) -> Space:
    """A space from its plain form. Raises ConfigError with every mistake in it."""
    space, problems = read_space(raw)
    if problems:
        raise ConfigError(problems)
    return space


def read_space(raw: Any, path: Path = (), *, grid: bool = False) -> tuple[Space, list[Problem]]:
    """A space from its plain form, and the problems in it; what is mistaken is left out.

    A value that is no mapping is a constant, even when it is a list; a mapping with ``type`` is one hyperparameter; any other
    mapping is a space inside. With ``grid``, ranges must say their ``count``.
    """
    problems: list[Problem] = []
    if not isinstance(raw, Mapping):
        return {}, [Problem.of_value(path, show(raw), "a mapping of names to hyperparameters")]
    space: Space = {}
    for name, value in raw.items():
        here = (*path, name)
        if not isinstance(value, Mapping):
            space[name] = Const(value)
        elif "type" in value:
            hyperparameter, wrong = _read(value, here, grid)
            problems += wrong
            if hyperparameter is not None:
                space[name] = hyperparameter
        else:
            space[name], wrong = read_space(value, here, grid=grid)
            problems += wrong
    return space, problems


def points(space: Space) -> int:
    """How many points a grid over the space has: ranges have their ``count``, ``int`` ranges no more than there are integers."""
    number = 1
    for value in space.values():
        if isinstance(value, dict):
            number *= points(value)
        elif isinstance(value, Categorical):
            number *= len(value.vals)
        elif not isinstance(value, Const):
            count = value.count or 1
            number *= min(count, value.maxval - value.minval + 1) if isinstance(value, Int) else count
    return number


def out_of_range(space: Space, path: Path) -> list[Problem]:
    """What no draw can be made from: ends beyond 64 bits, or values beyond every float."""
    problems: list[Problem] = []
    for name, value in space.items():
        here = (*path, name)
        if isinstance(value, dict):
            problems += out_of_range(value, here)
        elif isinstance(value, Int):
            if max(abs(value.minval), abs(value.maxval)) > LARGEST:
                problems.append(Problem(here, "minval and maxval must be between -2**63 and 2**63"))
        elif isinstance(value, (Double, Log)) and not _fits(value):
            problems.append(Problem(here, "the range is wider than a float can hold"))
    return problems


def _fits(range: Double | Log) -> bool:
    try:
        low, high = float(range.minval), float(range.maxval)
        if isinstance(range, Log):
            low, high = float(range.base) ** low, float(range.base) ** high
    except OverflowError:
        return False
    return math.isfinite(high - low)


def width(space: Space) -> int:
    """How many values one trial has."""
    return sum(width(value) if isinstance(value, dict) else 1 for value in space.values())


def plain(space: Space) -> dict[str, Any]:
    """The plain form of a space, every constant spelled out, as Determined stores it."""
    return {name: plain(value) if isinstance(value, dict) else _plain(value) for name, value in space.items()}


def _plain(hyperparameter: Hyperparameter) -> dict[str, Any]:
    name = next(name for name, cls in TYPES.items() if isinstance(hyperparameter, cls))
    form: dict[str, Any] = {"type": name}
    for field in fields(hyperparameter):
        value = getattr(hyperparameter, field.name)
        if field.name != "count" or value is not None:
            form[field.name] = list(value) if field.name == "vals" else value
    return form


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: Any) -> float | None:
    # A whole number stays one: the configuration is shown as it was written.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _read(raw: Mapping[str, Any], path: Path, grid: bool) -> tuple[Hyperparameter | None, list[Problem]]:
    kind = raw["type"]
    cls = TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        hint = did_you_mean(kind, TYPES) if isinstance(kind, str) else "a hyperparameter cannot itself be named 'type'"
        return None, [Problem.of_value((*path, "type"), show(kind), "one of " + ", ".join(sorted(TYPES)), hint)]
    names = [field.name for field in fields(cls)]
    problems: list[Problem] = []
    for name in raw:
        if name != "type" and name not in names:
            field_names = f"{', '.join(names)} in type {kind}"
            problems.append(Problem.unknown((*path, name), field_names, did_you_mean(name, names)))
    for name in names:
        if name not in raw and name != "count":
            problems.append(Problem((*path, name), f"required field is missing (type {kind})"))

    given: dict[str, Any] = {}

    def take(name: str, convert: Callable[[Any], Any], allowed: str) -> None:
        if name in names and name in raw:
            given[name] = convert(raw[name])
            if given[name] is None:
                problems.append(Problem.of_value((*path, name), show(raw[name]), allowed))

    if cls is Const:
        return (None, problems) if problems else (Const(raw["val"]), [])
    if cls is Categorical:
        take(
            "vals",
            lambda vals: tuple(vals) if isinstance(vals, list) and vals else None,
            "a list of at least one value",
        )
        return (None, problems) if problems else (Categorical(given["vals"]), [])
    number, expected = (_whole, "a whole number") if cls is Int else (_real, "a number")
    take("minval", number, expected)
    take("maxval", number, expected)
    take("base", lambda base: _real(base) if _real(base) and base > 0 else None, "a number > 0")
    if raw.get("count") is not None:
        take("count", lambda count: _whole(count) if (_whole(count) or 0) >= 1 else None, "a whole number >= 1")
    elif grid:
        problems.append(
            Problem((*path, "count"), "required field is missing: grid search needs the count of each range")
        )
    low, high = given.get("minval"), given.get("maxval")
    if low is not None and high is not None and not low < high:
        problems.append(Problem.of_value((*path, "maxval"), show(high), f"a number greater than minval ({show(low)})"))
    return (None, problems) if problems else (cls(**given), [])
