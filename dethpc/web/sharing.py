"""Pages that are made again because of a commit: once in a round of words, for all who look at the same as the same user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

from starlette.responses import Response, StreamingResponse

LIFETIME = 10.0
"""Seconds that an answer is kept for others. Browsers ask for it as soon as they are told."""

REQUEST_COST = 0.004
"""Seconds of a processor that it costs to take a request and to send what was made already."""


class Rounds(Protocol):
    """See ``dethpc.master.http.commits.Commits``."""

    @property
    def round(self) -> int: ...

    def cost(self, seconds: float) -> None: ...


class Shared:
    """All of it belongs to one event loop."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._made: dict[Hashable, asyncio.Task[Response]] = {}
        self._making, self._began = 0, 0.0

    async def answer(self, key: Hashable, make: Callable[[], Awaitable[Response]]) -> Response:
        """What was made in this round for the same ``key``, or is being made, or is made now. Only what succeeded is shared."""
        self._rounds.cost(REQUEST_COST)
        key = (self._rounds.round, key)
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(self._measured(make))
            asyncio.get_running_loop().call_later(LIFETIME, self._made.pop, key, None)
        response = await asyncio.shield(task)
        if response.status_code != 200 or isinstance(response, StreamingResponse):
            return await self._measured(make)
        return Response(response.body, response.status_code, dict(response.headers))

    async def _measured(self, make: Callable[[], Awaitable[Response]]) -> Response:
        """What the whole process spends while pages are made: never less than these cost, and nothing is counted twice."""
        if not self._making:
            self._began = time.process_time()
        self._making += 1
        try:
            return await make()
        finally:
            self._making -= 1
            if not self._making:
                self._rounds.cost(time.process_time() - self._began)
