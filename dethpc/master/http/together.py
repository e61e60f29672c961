"""Reports that wait go to a thread together and come back together: to hand over one by one costs more than to take them in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Begin = Callable[[], "Future[Any] | None"]
"""Something short that may touch a file. What it returns is waited for; None: it is done."""

THREADS = 2
"""One writes while the reports of the other are being committed."""

MOST = 128
"""At once: who comes first does not wait long for others."""


class Together:
    """For one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "together")
        self._waiting: list[tuple[Begin, asyncio.Future[None]]] = []
        self._busy, self._called = 0, False

    async def do(self, begin: Begin) -> None:
        """Raises what ``begin`` raises, and what its future does. Who no longer waits takes nothing back."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((begin, done))
        if not self._called and self._busy < THREADS:
            self._called = True
            loop.call_soon(self._hand_over, loop)  # behind those who are about to come here, too
        await done

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        self._called = False
        if not self._waiting or self._busy >= THREADS:
            return
        taken, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        self._busy += 1
        handed = loop.run_in_executor(self._threads, _take, [begin for begin, _ in taken])
        handed.add_done_callback(lambda each: self._come_back(loop, [done for _, done in taken], each))

    def _come_back(
        self,
        loop: asyncio.AbstractEventLoop,
        waiting: Sequence[asyncio.Future[None]],
        handed: asyncio.Future[list[BaseException | None]],
    ) -> None:
        self._busy -= 1
        failures = [asyncio.CancelledError()] * len(waiting) if handed.cancelled() else handed.result()
        for done, failure in zip(waiting, failures):
            if done.done():
                continue
            if failure is None:
                done.set_result(None)
            elif isinstance(failure, asyncio.CancelledError):
                done.cancel()
            else:
                done.set_exception(failure)
        self._hand_over(loop)


def _take(begins: Sequence[Begin]) -> list[BaseException | None]:
    """What went wrong with each. All are begun before one is waited for: the ledger commits them together."""
    return [_failure_of(each) for each in [_begun(begin) for begin in begins]]


def _begun(begin: Begin) -> Future[Any] | BaseException | None:
    try:
        return begin()
    except Exception as failure:
        return failure


def _failure_of(begun: Future[Any] | BaseException | None) -> BaseException | None:
    return begun.exception() if isinstance(begun, Future) else begun
