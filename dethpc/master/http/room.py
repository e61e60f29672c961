"""Room for reports that are on their way into the database. What finds none waits outside: its body is not read.

A master that falls behind would otherwise keep in memory whatever its trials have to tell, and a trial whose answer takes too long
tells it again. So the senders keep it: the kernel's buffers fill, and an answer comes once there was room and everything is
committed.
"""

from __future__ import annotations

import asyncio
from collections import deque

MOST_BYTES = 4 << 20
"""Of all bodies together that are inside; read and decided they take about ten times as much. One that is larger comes in alone.
That is about twenty thousand reports of a few values: a transaction of more is no cheaper for each."""

PATIENCE = 10.0
"""Seconds that somebody waits who can do without being heard: less than what clients wait for an answer."""


class Room:
    """For one event loop. Whoever comes first goes in first."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = self._left = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int, patience: float | None = None) -> bool:
        """``size`` is in bytes. Who has entered has to ``leave``. False: after ``patience`` seconds there was no room yet."""
        size = min(size, self._most)
        if size <= self._left and (not self._waiting or not size):
            self._left -= size
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await asyncio.wait_for(turn, patience)
        except asyncio.TimeoutError:
            return self._came_in(turn)
        except asyncio.CancelledError:
            if self._came_in(turn):
                self.leave(size)
            raise
        return True

    def leave(self, size: int) -> None:
        self._left += min(size, self._most)
        self._admit()

    def _came_in(self, turn: asyncio.Future[None]) -> bool:
        """Whether it had its turn just before it gave up waiting; else others may have theirs."""
        if turn.done() and not turn.cancelled():
            return True
        turn.cancel()
        self._admit()
        return False

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if turn.done():  # it waits no longer
                self._waiting.popleft()
            elif size <= self._left:
                self._waiting.popleft()
                self._left -= size
                turn.set_result(None)
            else:
                return
