"""Slurm's compressed host lists, such as ``n[0-3,7],login1``. Pure: asking ``scontrol`` would cost a process for each job."""

from __future__ import annotations

import re
from itertools import product

_ENTRY = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[\]]+)")


def expand(text: str) -> tuple[str, ...]:
    """Host names in order. ``r[0-1]n[08-10]`` has several ranges and padded numbers. Empty for ``(null)`` and the like."""
    if text in ("", "(null)", "None", "None assigned", "N/A"):
        return ()
    names: list[str] = []
    for entry in _ENTRY.findall(text):
        parts = [_ranges(m[1]) if m[1] is not None else [m[2]] for m in _PART.finditer(entry)]
        names.extend("".join(choice) for choice in product(*parts))
    return tuple(names)


def _ranges(text: str) -> list[str]:
    numbers: list[str] = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if dash:
            width = len(first)
            numbers.extend(str(number).zfill(width) for number in range(int(first), int(last) + 1))
        else:
            numbers.append(item)
    return numbers
