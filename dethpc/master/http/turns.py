"""Who only reads takes turns, and those who wait for the same share one reading.

Many threads that read at a time get no more done than a few, under one interpreter's lock, and whoever else wants that lock waits
for all of them: the loop that serves everybody, and the trials' reports. Pages that many people look at ask for the same lists
again and again, too. A reading is shared by those alone who asked before it began: nobody hears less than was committed before he
asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

AT_ONCE = 3
"""Readings that have a turn: one works, while another waits for a disk or gives way."""

LONGEST = 0.1
"""Seconds of a turn. What takes longer may be waiting for a scheduler or a file system: it goes on, and the next one begins beside
it."""


@dataclass(slots=True)
class _Look:
    """A reading that is waited for by so many. ``over``: its turn, not the reading itself."""

    read: Callable[[], bytes]
    told: asyncio.Future[bytes]
    askers: int = 0
    over: bool = False


class Turns:
    """For one event loop. ``at_once`` and ``longest`` are ``AT_ONCE`` and ``LONGEST`` but in tests."""

    def __init__(self, at_once: int = AT_ONCE, longest: float = LONGEST) -> None:
        self._free, self._longest = at_once, longest
        self._waiting: dict[Hashable, _Look] = {}  # the first one came first
        self._reading: set[asyncio.Task[None]] = set()

    async def look(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        """What ``read`` returns, or another's with an equal ``key`` that had not begun. It is called in a thread; once it has begun
        it goes on, whoever still waits. Raises what it raises, to all who share it."""
        look = self._waiting.get(key)
        if look is None:
            look = self._waiting[key] = _Look(read, asyncio.get_running_loop().create_future())
        look.askers += 1
        self._begin()
        try:
            return await asyncio.shield(look.told)
        finally:
            look.askers -= 1
            if not look.askers and self._waiting.get(key) is look:  # nobody is left to be told
                del self._waiting[key]

    def _begin(self) -> None:
        while self._free > 0 and self._waiting:
            look = self._waiting.pop(next(iter(self._waiting)))
            task = asyncio.get_running_loop().create_task(self._take_turn(look))
            self._reading.add(task)  # the loop itself would not keep it
            task.add_done_callback(self._reading.discard)
            self._free -= 1

    async def _take_turn(self, look: _Look) -> None:
        timer = asyncio.get_running_loop().call_later(self._longest, self._end, look)
        try:
            look.told.set_result(await run_in_threadpool(look.read))
        except asyncio.CancelledError:  # the loop ends
            look.over = True
            look.told.cancel()
            raise
        except BaseException as failure:
            look.told.set_exception(failure)
            look.told.exception()  # there may be nobody left to hear of it
        finally:
            timer.cancel()
            self._end(look)

    def _end(self, look: _Look) -> None:
        """Of its turn, which it has once."""
        if not look.over:
            look.over = True
            self._free += 1
            self._begin()
