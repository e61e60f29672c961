"""What a checkpoint still needs when the training goes on: done beside it, one thing after another."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Callable, List, Optional


class Background:
    """Runs calls in order, in a thread of its own that gives way to the training. What fails is raised by ``wait``."""

    def __init__(self) -> None:
        self._pool: Optional[Any] = None
        self._running: List[Any] = []

    def start(self, call: Callable[[], None]) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "dethpc-checkpoint", initializer=_give_way)
        self._running.append(self._pool.submit(call))

    def wait(self) -> None:
        """Until all is done. Raises the first failure since the last time, once."""
        running, self._running = self._running, []
        failures = [error for error in [one.exception() for one in running] if error is not None]
        if failures:
            raise failures[0]

    def close(self) -> None:
        """As ``wait``, and end the thread."""
        try:
            self.wait()
        finally:
            pool, self._pool = self._pool, None
            if pool is not None:
                pool.shutdown()


def _give_way() -> None:
    with contextlib.suppress(OSError, AttributeError):  # a thread has a priority of its own on Linux alone
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
