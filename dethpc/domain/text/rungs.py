"""How a search says at which rung it stopped a trial, and how that is read again. Pure."""

from __future__ import annotations

import re
from typing import Union

_PLACE = re.compile(r"rung \d+ \([^)]*\)")


def place(number: int, unit: str, length: Union[int, float]) -> str:
    """``rung 1 (epochs 4)``: how the reason of a trial begins that goes no further than that rung."""
    return f"rung {number} ({unit} {length})"


def stopped_early(state: str, reason: str) -> bool:
    """Whether a trial is completed because the search stopped it before its full length."""
    return state.endswith("COMPLETED") and _PLACE.match(reason) is not None


def completed_in_full(state: str, reason: str) -> bool:
    """Whether a trial is completed, and not because the search stopped it before its full length."""
    return state.endswith("COMPLETED") and not stopped_early(state, reason)


def place_of(reason: str) -> str:
    """``rung 1 (epochs 4)`` of such a reason, without the values that were compared; "" for any other reason."""
    match = _PLACE.match(reason)
    return match[0] if match else ""
