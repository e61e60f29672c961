"""Heartbeat of a long-running thread."""

from __future__ import annotations

import threading
import time
from pathlib import Path


class Heartbeat:
    """``beat`` whenever a piece of work is done or begun, ``rest`` before waiting for work for however long. One thread calls both,
    any may ask."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._thread = 0

    def beat(self) -> None:
        self._thread = threading.get_native_id()
        self._last = time.monotonic()

    def rest(self) -> None:
        self._last = None

    @property
    def silent(self) -> float:
        """Seconds since it last went on; 0 while it rests."""
        last = self._last
        return 0.0 if last is None else time.monotonic() - last

    @property
    def waits_for_a_disk(self) -> bool:
        """Whether the kernel has it in an uninterruptible sleep: a disk or file server does not answer."""
        try:
            return Path(f"/proc/self/task/{self._thread}/stat").read_text().rpartition(")")[2].split()[0] == "D"
        except (OSError, IndexError):
            return False
