"""Laying one configuration over another: the user's over the master's defaults, ``--config`` options over the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dethpc.config.problems import UNIONS
from dethpc.config.sections.checkpoint_storage import common_fields
from dethpc.config.sections.environment import SLOT_TYPES
from dethpc.config.sections.searcher import WarmStart, fields_of_method
from dethpc.config.source import Place, Source, read_value
from dethpc.domain.trial_config import UNITS
from dethpc.errors import Path, Problem

_SEARCHER_COMMON = WarmStart.model_fields.keys() - {"name"}
"""What one search method lends another."""

_JOINED: dict[Path, str] = {
    ("bind_mounts",): "container_path",
    ("resources", "devices"): "container_path",
    ("log_policies",): "name",
}
_OPTION = "--config"
_NOWHERE = Place("", None)
_VARIABLES = ("environment", "environment_variables")


def override(source: Source, options: Sequence[str]) -> list[Problem]:
    """Set each ``key.sub=value`` in ``source``, the value read as YAML. A mapping is laid over the mapping that is there; a
    hyperparameter is replaced by one, and keeps what is not named where a field of it is. A length in one unit replaces one in
    another. A search that becomes one of another method keeps the fields that both have."""
    problems: list[Problem] = []
    for option in options:
        key, equals, text = option.partition("=")
        names = tuple(key.strip().split("."))
        if not equals or not all(names):
            allowed = "KEY=VALUE, with dots between nested keys"
            problems.append(Problem.of_value("override", repr(option), allowed).at("--config"))
            continue
        value, _, wrong = read_value(text, f"{_OPTION} {key}")
        for problem in wrong:
            problem.path, problem.line = names, None
        problems += wrong
        if wrong:
            continue
        level = source.data
        for end, name in enumerate(names[:-1], 1):
            inner = level.get(name)
            if not isinstance(inner, dict):
                # Whatever stood there makes room.
                inner = level[name] = {}
                _forget(source, names[:end], f"{_OPTION} {key}")
            level = inner
        _assign(source, level, names, value, f"{_OPTION} {key}")
    return problems


def _assign(source: Source, level: dict[str, Any], path: Path, value: Any, file: str) -> None:
    name = str(path[-1])
    if name in UNITS and _is_length(path[:-1], level):
        _forget(source, path[:-1], file)
        level.clear()  # a length of another unit
    below = level.get(name)
    atomic = any(_is_hyperparameter(path, item) for item in (value, below))
    atomic = atomic or (isinstance(below, dict) and _is_length(path, below))
    if isinstance(value, dict) and isinstance(below, dict) and not atomic:
        for key, inner in value.items():
            _assign(source, below, (*path, key), inner, file)
    else:
        if path == ("searcher", "name") and value != below:
            _leave_fields_of(source, level, value)
        level[name] = value
        _forget(source, path, file)


def _leave_fields_of(source: Source, searcher: dict[str, Any], method: Any) -> None:
    if (fields := fields_of_method(method)) is None:
        return  # a mistake, which is told with what stands there
    for name in searcher.keys() - fields:
        if source.places.get(("searcher", name), _NOWHERE).file.startswith(_OPTION):
            continue  # another option says so, which is a mistake
        del searcher[name]
        for old in [old for old in source.places if old[:2] == ("searcher", name)]:
            del source.places[old]


def _forget(source: Source, path: Path, file: str) -> None:
    """What stood at and below ``path`` was written in the old place; it comes from ``file`` now."""
    for old in [old for old in source.places if old[: len(path)] == path]:
        del source.places[old]
    source.places[path] = Place(file, None)


def _is_hyperparameter(path: Path, value: Any) -> bool:
    return path[0] == "hyperparameters" and isinstance(value, dict) and "type" in value


def _is_length(path: Path, value: Any) -> bool:
    """Whether it is a count of one unit, which takes nothing from one of another unit."""
    return path[0] not in ("hyperparameters", "data") and len(value) == 1 and next(iter(value)) in UNITS


def fill(source: Source, defaults: Mapping[str, Any], file: str) -> None:
    """Put ``defaults`` under ``source``: what the user left out or set to null comes from there.

    Mappings are filled key by key; a hyperparameter is one thing, and so is a length; a section of another ``name`` or ``type``
    lends only what all its kinds share. Lists of bind mounts, devices, labels, log policies and environment variables are joined.
    """
    _fill(source, source.data, defaults, (), file)


def _fill(source: Source, upper: dict[str, Any], lower: Mapping[str, Any], path: Path, file: str) -> None:
    lower = _lendable(upper, lower, path)
    for key, value in lower.items():
        here = (*path, key)
        mine = upper.get(key)
        if value is None:
            continue
        if mine is None:
            upper[key] = value
            _forget(source, here, file)
        elif here == _VARIABLES:
            upper[key] = _join_variables(mine, value)
        elif isinstance(mine, dict) and isinstance(value, Mapping):
            if not any(_is_hyperparameter(here, item) or _is_length(here, item) for item in (mine, value)):
                _fill(source, mine, value, here, file)
        elif isinstance(mine, list) and isinstance(value, list):
            if here == ("labels",):
                upper[key] = mine + [label for label in value if label not in mine]
            elif here in _JOINED:
                name = _JOINED[here]
                names = [item.get(name) for item in mine if isinstance(item, dict) and item.get(name) is not None]
                upper[key] = mine + [
                    item for item in value if not isinstance(item, dict) or item.get(name) not in names
                ]


def _lendable(upper: Mapping[str, Any], lower: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    tag = UNIONS.get(path)
    if tag is None or upper.get(tag) is None or upper.get(tag) == lower.get(tag):
        return lower
    if path == ("searcher",):
        return {key: value for key, value in lower.items() if key in _SEARCHER_COMMON}
    return common_fields(dict(lower)) if path == ("checkpoint_storage",) else {}


def _join_variables(mine: Any, defaults: Any) -> Any:
    """The defaults first: among equal names the last counts."""
    if isinstance(mine, list) and isinstance(defaults, list):
        return defaults + mine
    by_type = [form if isinstance(form, Mapping) else dict.fromkeys(SLOT_TYPES, form) for form in (defaults, mine)]
    if not all(isinstance(value, (list, type(None))) for form in by_type for value in form.values()):
        return mine  # mistaken, and reported as it stands
    keys = dict.fromkeys([*by_type[0], *by_type[1]])
    return {key: [*(by_type[0].get(key) or []), *(by_type[1].get(key) or [])] for key in keys}
