"""What runs on this machine, as /proc shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files(name: str) -> Iterator[Path]:
    """``/proc/<id>/<name>`` of every process. One may have ended meanwhile: reading then raises OSError, and so may a glob."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            yield Path("/proc", entry, name)
