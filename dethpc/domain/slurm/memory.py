"""Sizes of memory as sbatch has them: a whole number and K, M, G or T; M where there is no letter."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+)([KMGT]?)", re.ASCII | re.IGNORECASE)
_MEGABYTES = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}


def is_size(text: str) -> bool:
    return _SIZE.fullmatch(text) is not None


def megabytes(size: str) -> int:
    """Whole megabytes; what is left of one is left out. Raises ValueError."""
    number, unit = _parts(size)
    return int(number * _MEGABYTES[unit.upper()])


def times(size: str, slots: int) -> str:
    """``size`` such as ``16G``, for that many slots. Raises ValueError."""
    number, unit = _parts(size)
    return f"{number * slots}{unit}"


def _parts(size: str) -> tuple[int, str]:
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f"{size!r} is not a size such as 8G or 8000M")
    return int(match[1]), match[2]
