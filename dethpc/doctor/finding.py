"""What a check says."""

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
    """``found``: what is so. ``dethpc``: what it will do about it. ``change``: what somebody could change, and where."""

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


def ok(found: str, dethpc: str = "") -> Finding:
    return Finding(Level.OK, found, dethpc)


def note(found: str, dethpc: str = "", change: str = "") -> Finding:
    return Finding(Level.NOTE, found, dethpc, change)


def warning(found: str, dethpc: str = "", change: str = "") -> Finding:
    return Finding(Level.WARNING, found, dethpc, change)


def error(found: str, dethpc: str = "", change: str = "") -> Finding:
    return Finding(Level.ERROR, found, dethpc, change)
