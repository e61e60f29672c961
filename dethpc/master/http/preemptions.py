"""Long-polls for preemption: one look a while at all attempts that wait, whatever their number, and no thread for any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dethpc.domain.ids import AttemptId

PAUSE = 0.5
"""Seconds between two looks."""


class Preemptions:
    """Answers many long-polls. Belongs to one event loop; while nobody waits, nothing runs."""

    def __init__(self, should_stop: Callable[[AttemptId], bool]) -> None:
        """``should_stop`` must return at once; it is called in a thread."""
        self._should_stop = should_stop
        self._waiting: dict[AttemptId, list[asyncio.Future[None]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, attempt: AttemptId, timeout: float) -> bool:
        """Whether the attempt should stop; after ``timeout`` seconds at the latest."""
        if await asyncio.to_thread(self._should_stop, attempt):
            return True
        if timeout <= 0:
            return False
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(attempt, []).append(asked)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait_for(asked, timeout)
            return True
        except asyncio.TimeoutError:
            return False
        finally:
            waiters = self._waiting.get(attempt, [])
            if asked in waiters:
                waiters.remove(asked)
            if not waiters:
                self._waiting.pop(attempt, None)

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(PAUSE)
            for attempt in await asyncio.to_thread(self._stopping, list(self._waiting)):
                for asked in self._waiting.get(attempt, []):
                    if not asked.done():
                        asked.set_result(None)

    def _stopping(self, attempts: list[AttemptId]) -> list[AttemptId]:
        return [attempt for attempt in attempts if self._should_stop(attempt)]
