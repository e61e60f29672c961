"""Looks after the threads without which a master answers and does nothing, and after its end."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

WATCH = 2.0
"""Seconds between two looks at the threads."""

LONGEST_END = 30.0
"""Seconds after which a master that was told to end is ended: one that lives on would keep its successor out."""


class Watchdog:
    """``threads``: by name, whether each is alive. ``broken`` is called with the reason when one has died."""

    def __init__(
        self, stopped: threading.Event, threads: Mapping[str, Callable[[], bool]], broken: Callable[[str], None]
    ) -> None:
        self._stopped, self._threads, self._broken = stopped, threads, broken
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def ended(self) -> None:
        """The master has ended by itself."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._stopped.wait(WATCH):
            dead = next((name for name, alive in self._threads.items() if not alive()), None)
            if dead is not None:
                self._broken(f"the thread of the {dead} has died")
        if not self._ended.wait(LONGEST_END):
            log.critical("this master does not end by itself within %g s", LONGEST_END)
            os._exit(1)
