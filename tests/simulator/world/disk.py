"""The instant at which something fails: before any operation that changes a file, any word to the scheduler, any commit.

CPython tells audit hooks of every file that it opens, renames, links, removes or makes. The hook is installed once and for all, and
does nothing while no story is told.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CHANGES = frozenset({"os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate", "os.symlink", "os.rmdir"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


class Killed(BaseException):
    """kill -9: the process is gone, and nothing that it would have done after this happens."""


class Disk:
    """Whose file operations fail, and when. ``actor``: the process that acts now; empty: nobody's doing counts."""

    def __init__(self, root: str, rng: random.Random) -> None:
        self.root, self._rng = root, rng
        self._thread = threading.get_ident()
        self.actor = ""
        self.points = 0  # how many instants there were
        self._strikes: dict[str, tuple[int, Callable[[], None]]] = {}
        self._dead = ""  # the actor that was killed and is still on its way out
        self.failing: dict[str, tuple[float, int]] = {}  # actor -> how likely each operation fails, and as what
        self.on_change: Callable[[str], None] = lambda what: None
        self.on_thread: Callable[[str], None] = lambda what: None
        self.on_failure: Callable[[str], None] = lambda kind: None
        self.on_write: Callable[[str], None] = lambda path: None

    def strike(self, actor: str, points: int, what: Callable[[], None]) -> None:
        """``what`` happens to ``actor`` at that many instants from now: it may raise Killed."""
        self._strikes[actor] = points, what

    def spare(self) -> None:
        self._strikes.clear()

    def kill(self) -> None:
        """End the acting process here. Its ``finally`` blocks run in this simulation, but change nothing any more."""
        self._dead = self.actor
        raise Killed

    @contextmanager
    def acting(self, actor: str) -> Iterator[None]:
        before, self.actor = self.actor, actor
        try:
            yield
        finally:
            self.actor = before
            if self._dead == actor:
                self._dead = ""

    def point(self) -> None:
        """An instant at which the acting process may be struck."""
        if not self.actor:
            return
        if self._dead == self.actor:
            raise Killed
        self.points += 1
        if (struck := self._strikes.get(self.actor)) is not None:
            left, what = struck[0] - 1, struck[1]
            if left > 0:
                self._strikes[self.actor] = left, what
            else:
                del self._strikes[self.actor]
                what()

    def changes(self, path: Any) -> None:
        if not str(path).startswith(self.root):
            return  # the interpreter's own: what it compiles when a module is first imported
        if self.actor:
            what = f"{self.actor} changes {str(path).removeprefix(self.root)}"
            if threading.get_ident() != self._thread:
                self.on_thread(f"{what} in a thread of its own: one seed would be another story each time")
            self.on_change(what)
        self.point()
        chance, number = self.failing.get(self.actor, (0.0, 0))
        if chance and self._rng.random() < chance:
            self.on_failure(os.strerror(number))
            raise OSError(number, os.strerror(number), str(path))

    def reads(self, path: Any) -> None:
        chance, number = self.failing.get(self.actor, (0.0, 0))
        if chance and str(path).startswith(self.root) and self._rng.random() < chance / 4:
            self.on_failure(f"reading: {os.strerror(number)}")
            raise OSError(number, os.strerror(number), str(path))


_told: Disk | None = None
_hooked = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _told is None or not _told.actor:
        return
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, int):
            return
        writes = flags & _WRITING if isinstance(flags, int) else False
        if writes or (isinstance(mode, str) and not set(mode).isdisjoint("wax+")):
            _told.changes(path)
            _told.on_write(str(path))  # after the instant at which it may be frozen
        else:
            _told.reads(path)
    elif event in _CHANGES:
        _told.changes(arguments[0])
        if event == "os.rename":
            _told.on_write(str(arguments[1]))


@contextmanager
def watched(disk: Disk) -> Iterator[None]:
    global _told, _hooked
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    _told = disk
    try:
        yield
    finally:
        _told = None
