"""Long-polls for preemption: one poll of the state serves all attempts that wait, and none of them holds a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dethpc.domain.ids import AttemptId

PAUSE = 0.5
"""Seconds between two looks."""


class Preemptions:
    """Answers many long-polls. Belongs to one event loop; while nobody waits, nothing runs."""

    def __init__(self, stop_reason: Callable[[AttemptId], str | None]) -> None:
        """``stop_reason``: why the attempt should stop, if it should. It must return at once; it is called in a thread."""
        self._stop_reason = stop_reason
        self._waiting: dict[AttemptId, list[asyncio.Future[bool]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._ended = False

    async def wait(self, attempt: AttemptId, timeout: float) -> bool:
        """Whether the attempt should stop; after ``timeout`` seconds at the latest. A master that ends says no at once: its
        clients look into the run directory meanwhile."""
        if await asyncio.to_thread(self._stop_reason, attempt) is not None:
            return True
        if timeout <= 0 or self._ended:
            return False
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(attempt, []).append(waiter)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            return await asyncio.wait_for(waiter, timeout)
        except asyncio.TimeoutError:
            return False
        finally:
            waiters = self._waiting.get(attempt, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiting.pop(attempt, None)

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(PAUSE)
            for attempt in await asyncio.to_thread(self._stopping, list(self._waiting)):
                self._answer(attempt, True)

    def end(self) -> None:
        """Answer everybody who waits, and keep nobody waiting any more."""
        self._ended = True
        for attempt in self._waiting:
            self._answer(attempt, False)

    def _answer(self, attempt: AttemptId, should_stop: bool) -> None:
        for waiter in self._waiting.get(attempt, []):
            if not waiter.done():
                waiter.set_result(should_stop)

    def _stopping(self, attempts: list[AttemptId]) -> list[AttemptId]:
        return [attempt for attempt in attempts if self._stop_reason(attempt) is not None]
