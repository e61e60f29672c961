"""Reported values as JSON: what numpy, torch and Python make of a number, in Determined's spelling."""

from __future__ import annotations

import enum
import numbers
from typing import Any, Dict

from dethpc.domain.text.not_finite import spelled

_PLAIN = (int, str, bool, type(None))
_MOST = 2**1023  # beyond it a whole number is no float, and Python does not even write long ones


def jsonable(value: Any, where: str = "value") -> Any:
    """``value`` with only JSON types in it; NaN and the infinities become "NaN", "Infinity", "-Infinity".

    Tensors and arrays become (nested) lists, or a number when they have no dimension. Raises TypeError that names the place.
    """
    kind = type(value)
    if kind is float:
        return value if value - value == 0.0 else spelled(value)
    if kind is int and not -_MOST < value < _MOST:
        raise ValueError(f"{where} is {shown(value)}, which no float can hold")
    if kind in _PLAIN:
        return value
    if isinstance(value, dict):
        return {str(name): jsonable(item, f"{where}[{name!r}]") for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item, f"{where}[{n}]") for n, item in enumerate(value)]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return jsonable(int(value), where)
    if isinstance(value, numbers.Real):
        return jsonable(float(value))
    if isinstance(value, (bytes, bytearray)):
        return _decode(value, where)
    for method in ("tolist", "numpy", "isoformat"):
        if callable(getattr(value, method, None)):
            return _converted(value, method, where)
    if kind.__name__ == "UUID":
        return str(value)
    raise TypeError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, which JSON cannot represent; report numbers or text"
    )


def encode_metrics(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """Raises TypeError, ValueError that name the metric."""
    if not isinstance(metrics, dict):
        raise TypeError(f"metrics must be a dict of name -> value, not a {type(metrics).__name__}")
    plain: Dict[str, Any] = {}
    for name, value in metrics.items():
        kind = type(value)
        # Nearly all; thousands of them must cost little.
        if (kind is float and value - value == 0.0) or (kind is int and -_MOST < value < _MOST):
            plain[str(name)] = value
        else:
            plain[str(name)] = jsonable(value, f"metric {name!r}")
    return plain


def _converted(value: Any, method: str, where: str) -> Any:
    try:
        plain = getattr(value, method)()
    except Exception as error:
        raise TypeError(f"{where}: {type(value).__qualname__}.{method}() failed: {error}") from error
    if plain is value:
        raise TypeError(f"{where} is a {type(value).__qualname__}, which JSON cannot represent")
    return jsonable(plain, where)


def shown(whole: int) -> str:
    """A whole number for a message, however long it is."""
    return str(whole) if -(2**70) <= whole <= 2**70 else f"a number of {whole.bit_length()} bits"


def _decode(value: Any, where: str) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise TypeError(f"{where} holds bytes that are not UTF-8 text") from None
