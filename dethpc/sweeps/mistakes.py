"""Errors in a sweep's configuration, translated to the arguments of ``sweep``: the caller never sees the configuration's lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

from dethpc.errors import ConfigError, Path, Problem, dotted, path_of

_KEYWORDS: Mapping[Path, str] = {
    ("searcher", "name"): "searcher",
    ("resources", "slots_per_trial"): "slots",
    ("resources", "resource_pool"): "pool",
    ("entrypoint",): "python",
}


@contextmanager
def told_as_called(space: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[None]:
    """Raises ConfigError, its problems as those who called ``sweep`` with these know them."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([as_called(problem, space, config) for problem in error.problems]) from None


def as_called(problem: Problem, space: Mapping[str, Any], config: Mapping[str, Any]) -> Problem:
    """The mistake where the call of ``sweep`` has it: ``space['lr']``, ``max_trials``, ``config['slurm']['sbatch_args']``."""
    path = path_of(problem.field)
    if path[0] == "hyperparameters":
        where, rest = _followed("space", space, path[1:])
    else:
        where, rest = _followed("config", config, path)
        if rest and len(rest) >= len(path) - (path[0] in ("searcher", "resources")):  # a keyword of the call's own
            where, rest = _KEYWORDS.get(path) or dotted(path[1:] if path[0] == "searcher" else path), ()
    name = f"{where}: {dotted(rest)}" if rest else where
    renamed = copy(problem)
    renamed.path, renamed.file, renamed.line = (name,), "dethpc.sweep", None
    return renamed


def _followed(name: str, value: Any, path: Path) -> tuple[str, Path]:
    """``name`` with an index for each step of ``path`` that is in ``value``, and the steps that are not."""
    while path and isinstance(value, Mapping) and path[0] in value:
        name, value, path = f"{name}[{path[0]!r}]", value[path[0]], path[1:]
    return name, path
