"""NaN and the infinities in JSON, which has no such numbers: text, in the spelling of protobuf and of Determined."""

from __future__ import annotations

import math
from typing import Any, Union

SPELLINGS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def as_float(value: float) -> float:
    """``value``, an integer of any size included: beyond all floats it is an infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def spelled(value: float) -> Union[float, str]:
    """``value``, or how it is spelled where JSON, or whoever reads it as a float, cannot have it."""
    number = as_float(value)
    if math.isfinite(number):
        return value
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def numbers_in(value: Any) -> Any:
    """``value`` with the number in place of each text that spells one, in lists and dicts, too."""
    if isinstance(value, dict):
        return {name: numbers_in(item) for name, item in value.items()}
    if isinstance(value, list):
        return [numbers_in(item) for item in value]
    return SPELLINGS.get(value, value) if isinstance(value, str) else value
