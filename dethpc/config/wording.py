"""How messages about a configuration quote a value, without its secrets, and guess what was meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dethpc.domain.secrets import SECRET, hide_passwords
from dethpc.errors import Path


def show(value: Any, path: Path = ()) -> str:
    """A value as an error message may quote it: short, and never a secret or the contents of a mapping."""
    if value is None:
        return "nothing"
    if any(part in SECRET for part in path):
        return "a secret value"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = hide_passwords(repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(word: str, known: Iterable[str], alike: float = 0.5) -> str | None:
    """A hint with the nearest of the ``known`` words, or None when none is near. ``alike``: 0 to 1, how near it has to be."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=alike)
    return f"did you mean {near[0]!r}?" if near else None
