"""Steps (Determined before 0.12.13): lengths are counted in steps of ``batches_per_step`` batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dethpc.config.dialects.edit import Edit
from dethpc.config.dialects.units import whole
from dethpc.config.wording import show
from dethpc.errors import Path, Problem

BATCHES_PER_STEP = 100

_EVERY_LENGTH = (
    "single",
    "random",
    "grid",
    "adaptive",
    "adaptive_simple",
    "adaptive_asha",
    "async_halving",
    "sync_halving",
)
FIELDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "max_steps": ("max_length", _EVERY_LENGTH),
    "target_trial_steps": ("max_length", ("adaptive", "adaptive_asha", "async_halving", "sync_halving")),
    "step_budget": ("budget", ("adaptive", "sync_halving")),
    "steps_per_round": ("length_per_round", ("pbt",)),
}
"""Of the ``searcher`` section: older name -> present name, and the methods that have it."""

RANGES = ("categorical", "double", "int", "log")

TRAINED_WHOLE = ("single", "random")
"""The methods that nothing but ``max_steps`` told how long to train."""

PERIODS = ("min_validation_period", "min_checkpoint_period")


def translate(data: Mapping[str, Any]) -> tuple[list[Edit], list[Problem]]:
    """Steps as batches. A period without a unit is one of steps if anything else in the configuration speaks of steps."""
    edits: list[Edit] = []
    problems: list[Problem] = []

    def count(value: Any, path: Path, least: int) -> int:
        number = whole(value)
        if number is None or number < least:
            problems.append(Problem.of_value(path, show(value), f"a whole number >= {least} (of steps)"))
            return max(1, least)
        return number

    size = BATCHES_PER_STEP
    if data.get("batches_per_step") is not None:
        path: Path = ("batches_per_step",)
        number = whole(data["batches_per_step"])
        if number is None or number < 1:
            problems.append(Problem.of_value(path, show(data["batches_per_step"]), "a whole number >= 1 (of batches)"))
        elif data.get("scheduling_unit") is not None:
            problems.append(Problem(path, "set scheduling_unit or batches_per_step, its older name, not both"))
        else:
            size = number
            edits.append(Edit(path, number, {"scheduling_unit": number}, "its name today"))
    why = f"a step is {size} batches"

    searcher = data.get("searcher")
    searcher = searcher if isinstance(searcher, Mapping) else {}
    old_names: dict[str, str] = {}
    for old, (new, methods) in FIELDS.items():
        value = searcher.get(old)
        if value is None or searcher.get("name") not in methods:
            continue
        path = ("searcher", old)
        other = old_names.get(new) or (new if searcher.get(new) is not None else None)
        if other is not None:
            problems.append(Problem(path, f"set {other} or {old}, not both"))
            continue
        old_names[new] = old
        steps = count(value, path, 1)
        edits.append(Edit(path, value, {new: {"batches": steps * size}}, why))

    if edits or problems:
        problems += _demanded(data, searcher, wrong={problem.path for problem in problems})
        for name in PERIODS:
            value = data.get(name)
            if value is not None and not isinstance(value, Mapping):
                steps = count(value, (name,), 0)
                edits.append(Edit((name,), value, {name: {"batches": steps * size}}, why))
    return edits, problems


def _demanded(data: Mapping[str, Any], searcher: Mapping[str, Any], wrong: set[Path]) -> Iterator[Problem]:
    """What this generation did not do without, and later ones do: a length of training, and constants where nothing is searched."""
    path: Path = ("searcher", "max_steps")
    if (
        searcher.get("name") in TRAINED_WHOLE
        and path not in wrong
        and not {"max_steps", "max_length"} & searcher.keys()
    ):
        yield Problem(path, "required field is missing (a number of steps)")
    if searcher.get("name") == "single":
        yield from _ranges(data.get("hyperparameters"), ("hyperparameters",))


def _ranges(value: Any, path: Path) -> Iterator[Problem]:
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        if isinstance(inner, Mapping) and inner.get("type") in RANGES:
            message = (
                f"the single searcher tries no range ({inner['type']}) where lengths are in steps; write a constant"
            )
            yield Problem((*path, str(name)), message)
        else:
            yield from _ranges(inner, (*path, str(name)))
