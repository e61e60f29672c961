"""``Finding``, the result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Level(str, Enum):
    """How much a finding matters, from least to most."""

    OK = "ok"
    NOTE = "note"  # dethpc copes; worth knowing
    WARNING = "warning"  # it works, and something is lost, slow or unsafe
    ERROR = "error"  # something does not work


@dataclass(frozen=True)
class Finding:
    """``found``: the condition. ``dethpc``: how dethpc handles it. ``change``: what could be changed, and where."""

    level: Level
    found: str
    dethpc: str = ""
    change: str = ""
    check: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "level": self.level.value,
            "found": self.found,
            "dethpc": self.dethpc,
            "change": self.change,
        }


def ok(condition: str, dethpc: str = "") -> Finding:
    return Finding(Level.OK, condition, dethpc)


def note(condition: str, dethpc: str = "", change: str = "") -> Finding:
    return Finding(Level.NOTE, condition, dethpc, change)


def warning(condition: str, dethpc: str = "", change: str = "") -> Finding:
    return Finding(Level.WARNING, condition, dethpc, change)


def error(condition: str, dethpc: str = "", change: str = "") -> Finding:
    return Finding(Level.ERROR, condition, dethpc, change)
