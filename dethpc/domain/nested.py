"""Values in dicts of dicts, by one name each: hyperparameters (``optimizer.lr``), metrics of machines (``node1/gpu0/gpu_util``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], separator: str = ".", above: str = "") -> Iterator[tuple[str, Any]]:
    """``{"a": {"b": 1}}`` as ``("a.b", 1)``. What is no dict is a value, and so is an empty one."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, separator, f"{above}{name}{separator}")
        else:
            yield above + name, value
