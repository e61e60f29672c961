"""Monitors the threads that a master depends on, and ends a process that does not stop in time."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from dethpc.master.heartbeat import Heartbeat

log = logging.getLogger(__name__)

WATCH = 2.0
"""Seconds between two looks at the threads."""

SILENCE = 120.0
"""Seconds after which a thread that does not go on is spoken of."""

LONGEST_SILENCE = 1800.0
"""Seconds after which a thread that does not go on is thought never to. One that waits for a disk is waited for: the next master
would wait for the same disk."""

LONGEST_END = 30.0
"""Seconds after which a master that was told to end is ended: one that lives on would keep its successor out."""


_UNWRITABLE = "disk"
"""In place of a thread's name."""


class Watched(Protocol):
    """A thread, or what it works for."""

    heartbeat: Heartbeat

    @property
    def alive(self) -> bool: ...


class Watchdog:
    """``threads`` by name. ``broken`` is called with the reason when one has died, or is stuck for good; ``tell`` with what is
    wrong while one may still go on, and with "" when it has. ``unwritable``: why the master cannot write at present, or ""."""

    def __init__(
        self,
        stopped: threading.Event,
        broken: Callable[[str], None],
        tell: Callable[[str], None],
        unwritable: Callable[[], str] = lambda: "",
        **threads: Watched,
    ) -> None:
        self._stopped, self._threads, self._broken, self._tell = stopped, threads, broken, tell
        self._unwritable = unwritable
        self._told = ""
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def ended(self) -> None:
        """The master has ended by itself."""
        self._ended.set()

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._stopped.wait(WATCH):
            before, looked = looked, time.monotonic()
            if looked - before < WATCH + SILENCE / 2:  # else all threads were stopped, and have to show that they go on
                self._look()
        if not self._ended.wait(LONGEST_END):
            log.critical("this master does not end by itself within %g s", LONGEST_END)
            os._exit(1)

    def _look(self) -> None:
        """The first that is wrong is the cause: those after it may wait for it."""
        for name, watched in self._threads.items():
            if not watched.alive:
                self._broken(f"the thread of the {name} has died")
                return
            silent = watched.heartbeat.silent
            if silent >= SILENCE:
                at_a_disk = watched.heartbeat.waits_for_a_disk
                if silent >= LONGEST_SILENCE and not at_a_disk:
                    self._broken(f"the thread of the {name} is stuck for {silent:.0f} s")
                else:
                    self._say(name, silent, at_a_disk)
                return
        if why := self._unwritable():
            self._told = self._told or _UNWRITABLE
            self._tell(f"cannot write ({why}): states are shown as last written. Trials continue")
        elif self._told:
            message, self._told = self._told, ""
            self._tell("")
            if message == _UNWRITABLE:
                log.warning("this master can write again")
                return
            log.warning("every thread goes on again")

    def _say(self, name: str, silent: float, at_a_disk: bool) -> None:
        why = "; it waits for a disk or file server that does not answer" if at_a_disk else ""
        self._tell(
            f"its {name} has been stuck for {silent:.0f} s{why}. Trials continue; your requests may have to wait"
        )
        if self._told != name:
            self._told = name
            log.error("the thread of the %s has not gone on for %.0f s%s", name, silent, why)
