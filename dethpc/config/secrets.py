"""Secrets in a configuration: hidden in whatever is shown, and put back into what comes home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dethpc.config.source import dump, read
from dethpc.domain.secrets import MASK, SUSPICIOUS, hide, masked, masked_at
from dethpc.errors import Path, Problem


def masked_text(text: str) -> str:
    """A YAML configuration with its secrets hidden; as it was written, if it has none."""
    if not SUSPICIOUS.search(text):
        return text
    source, problems = read(text, "config")
    if problems:  # of an earlier release, which took larger ones
        return (
            "# This configuration cannot be read, and so its secrets cannot be told from the rest: it is not shown.\n"
        )
    data = source.data
    hidden = masked(data)
    return text if hidden == data else dump(hidden)


def revealed(config: Any, plain: Sequence[Any]) -> tuple[Any, list[Problem]]:
    """A copy of ``config`` in which each ``MASK`` is again the secret that the first of ``plain`` has there (these
    are configurations with their secrets), and one problem for each that none of them has.
    """
    problems: list[Problem] = []
    return _revealed(config, list(plain), (), problems), problems


def _is_hidden(text: str, path: Path) -> bool:
    """Whether ``MASK`` in it stands for a secret and is not simply what was written."""
    return MASK in text and hide(text.replace(MASK, "x"), path) == text


def _revealed(value: Any, plain: Sequence[Any], path: Path, problems: list[Problem]) -> Any:
    if path == ("hyperparameters",):
        return value
    if isinstance(value, Mapping):
        return {
            key: _revealed(item, [k[key] for k in plain if isinstance(k, Mapping) and key in k], (*path, key), problems)
            for key, item in value.items()
        }
    if isinstance(value, list):
        lists = [k for k in plain if isinstance(k, (list, tuple))]
        return [
            _revealed(item, [one for k in lists for one in (*k[i : i + 1], *k)], (*path, i), problems)
            for i, item in enumerate(value)
        ]
    if not isinstance(value, str) or not _is_hidden(value, path):
        return value
    for secret in plain:
        if isinstance(secret, (str, int, float)) and secret != value and masked_at(secret, path) == value:
            return secret
    hint = "a fork of an experiment has its secrets, if it is sent with the parent's id"
    problems.append(Problem(path, f"{MASK} stands for a secret that was not shown; write the secret itself", hint))
    return value
