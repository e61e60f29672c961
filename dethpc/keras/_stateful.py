"""The state of other callbacks, which Keras itself does not keep."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Sequence

import keras
import numpy


def states(callbacks: Sequence[keras.callbacks.Callback]) -> List[Dict[str, Any]]:
    """Of each: its attributes of plain values, but not what it was configured with, which stays as the code says now."""
    return [_state(callback) for callback in callbacks]


def restore(callbacks: Sequence[keras.callbacks.Callback], states: Sequence[Dict[str, Any]]) -> None:
    """When training has begun: callbacks reset themselves then."""
    for callback, state in zip(callbacks, states):
        vars(callback).update(state)


def _state(callback: keras.callbacks.Callback) -> Dict[str, Any]:
    configured = {n for cls in type(callback).__mro__[:-1] for n in inspect.signature(cls).parameters}
    state = {}
    for name, value in vars(callback).items():
        if keras.ops.is_tensor(value):
            value = keras.ops.convert_to_numpy(value)
        if name not in configured and name not in ("_model", "model", "params") and _is_plain(value):
            state[name] = value
    return state


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(one) for both in value.items() for one in both)
    return value is None or isinstance(value, (bool, int, float, str, numpy.ndarray, numpy.generic))
