"""Periodic background work: each kind runs on its own thread, and an error is logged and does not end the master."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dethpc.errors import LeaseHeld, ShuttingDown, StoreUnavailable

log = logging.getLogger(__name__)


class Rounds:
    """``do`` is called ``first`` seconds after the start, and ``every`` seconds after each round; None: only when it is woken. What
    it raises is logged after ``trouble`` and tried again in the next round, unless this master is not the one any more, or ends."""

    def __init__(
        self, name: str, do: Callable[[], object], every: float | None, *, first: float | None = None, trouble: str
    ) -> None:
        self._do, self._every, self._first, self._trouble = do, every, every if first is None else first, trouble
        self._stopping, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait for the round that is under way. Safe where it was not started."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """The next round begins now, or when this one is done. Safe from any thread."""
        self._woken.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def rest(self, seconds: float) -> None:
        """Within a round that takes long. Raises ShuttingDown."""
        if self._stopping.wait(seconds):
            raise ShuttingDown("the master ends")

    def _run(self) -> None:
        pause = self._first
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self._stopping.is_set():
                return
            try:
                self._do()
            except (LeaseHeld, ShuttingDown):
                return
            except StoreUnavailable:
                pass  # the store tells it
            except Exception:
                log.exception("%s; the master tries again", self._trouble)
            pause = self._every
