"""How a length of time, a size, a count and a part of a whole are written for people, in ``det`` and on its pages alike."""

from __future__ import annotations

from typing import Optional


def duration(seconds: Optional[float]) -> str:
    """``3.2s``, ``45s``, ``3m56s``, ``2h05m``, ``3d04h``; "" for None."""
    if seconds is None:
        return ""
    whole = int(seconds)
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02d}{below}"
    return f"{seconds:.1f}s" if whole < 10 and seconds != whole else f"{whole}s"


def percent(part: Optional[float]) -> str:
    """``83%`` for 0.83; "" for None."""
    return "" if part is None else f"{100 * part:.0f}%"


def plural(number: int, noun: str, many: str = "") -> str:
    """``1 step``, ``2 steps``. ``many``: a plural that takes another ending."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"


def size(count: float) -> str:
    """Bytes: ``1023 B``, ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
