"""Logs a lost connection to the database server once, and its return once."""

from __future__ import annotations

import logging
import threading
import time

from dethpc.errors import StoreUnavailable

log = logging.getLogger(__name__)

TOLD_AFTER = 10.0
"""Seconds without an answer after which it is told: the server may just be starting again."""


class Absence:
    """Since when one server has been away. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told = False

    def met(self, error: StoreUnavailable) -> None:
        """Somebody asked and had no answer."""
        now = time.monotonic()
        with self._lock:
            if self._since is None:
                self._since = now
            if self._told or now - self._since < TOLD_AFTER:
                return
            self._told = True
        log.error("%s; this master waits for it", error)

    def over(self) -> None:
        """Somebody asked and had an answer."""
        if self._since is None:  # nearly always: without the lock
            return
        with self._lock:
            since, told = self._since, self._told
            self._since, self._told = None, False
        if told and since is not None:
            log.warning("the database server answers again, after %.0f s", time.monotonic() - since)
