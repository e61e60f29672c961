"""How messages about a configuration quote a value, without its secrets, and guess what was meant (``did_you_mean``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dethpc.domain.secrets import SECRET, hide_passwords
from dethpc.domain.text.hints import did_you_mean as did_you_mean
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
