"""Conversion of hyperparameter spaces from Python values to a configuration's form.

========================  ==========================================
a list                    one of its items
``range(1, 9)``           a whole number from 1 to 8
``(1, 8)``                a whole number from 1 to 8, both included
``(0.0, 0.5)``            a real number between
``(1e-4, 1e-1, "log")``   the same, its logarithm even
a dict with ``type``      as in a configuration
any other dict            a space inside
anything else             the same value in every trial
========================  ==========================================
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from typing import Any

from dethpc.client.session import Json
from dethpc.domain.text.not_finite import SPELLINGS, spelled


def dialect(space: Mapping[str, Any], where: str = "space") -> Json:
    """Raises ValueError, TypeError that say what is wrong, as the caller has it: ``space['lr']``."""
    if not isinstance(space, Mapping):
        raise TypeError(f"a space is a dict of names to hyperparameters, not {space!r:.100}")
    fields = {}
    for name, value in space.items():
        if not isinstance(name, str):
            raise TypeError(f"the names of hyperparameters are text, not {name!r}")
        at = f"{where}[{name!r}]"
        if isinstance(value, Mapping) and not isinstance(value.get("type"), str):
            fields[name] = dialect(value, at)
            continue
        try:
            fields[name] = _one(value)
            json.dumps(fields[name])  # raises TypeError where there is no such value
        except (TypeError, ValueError) as error:
            raise type(error)(f"{at}: {error}") from None
    return fields


def _one(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, range):
        if not value:
            raise ValueError(f"{value} is empty")
        if value.step != 1:
            return {"type": "categorical", "vals": list(value)}
        return {"type": "int", "minval": value[0], "maxval": value[-1], "count": len(value)}
    if isinstance(value, tuple):
        return _between(*value) if len(value) in (2, 3) else _wrong(value)
    if isinstance(value, (list, set, frozenset)) or getattr(value, "ndim", None):
        vals = [plain(item) for item in value]
        if not vals:
            raise ValueError("there is nothing to choose from")
        return {"type": "categorical", "vals": vals}
    return {"type": "const", "val": plain(value)}


def _between(low: Any, high: Any, scale: Any = None) -> Json:
    low, high = plain(low), plain(high)
    if any(isinstance(end, bool) or not isinstance(end, numbers.Real) for end in (low, high)):
        _wrong((low, high) if scale is None else (low, high, scale))
    if scale == "log":
        if not 0 < low <= high:
            raise ValueError(f"a logarithmic range is from a number above 0 upwards, not from {low} to {high}")
        return {"type": "log", "base": 10, "minval": math.log10(low), "maxval": math.log10(high)}
    if scale is not None:
        _wrong((low, high, scale))
    return {
        "type": "int" if isinstance(low, int) and isinstance(high, int) else "double",
        "minval": low,
        "maxval": high,
    }


def plain(value: Any) -> Any:
    """numpy's numbers as Python's; NaN and the infinities as the text that the trial takes for them. Raises ValueError."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(value, str) and value in SPELLINGS:
        raise ValueError(f"the text {value!r} would reach the function as a number: write it otherwise")
    return spelled(value) if isinstance(value, float) else value


def _wrong(value: Any) -> Any:
    raise ValueError(f'{value!r} is no range: write (low, high) or (low, high, "log"). A choice is a list')
