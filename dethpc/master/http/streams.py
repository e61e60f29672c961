"""Streamed responses in newline-delimited JSON, as Determined's gateway sends them. A quiet stream holds no thread, and yields an
empty chunk now and then: with each chunk it may turn out that its client is to have no more."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from http import HTTPStatus
from itertools import islice
from typing import TypeVar

from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy import Connection
from starlette.types import Receive, Scope, Send

from dethpc.errors import DethpcError
from dethpc.master.http.auth import Auth, Forbidden
from dethpc.master.http.middleware import GRANT
from dethpc.state.store import ReadStore

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

PAUSE = 0.5
"""Seconds between two looks at something that is followed."""


CHECKED = 2.0
"""Seconds between two checks whether the client may still have what is followed."""


def line(model: BaseModel) -> bytes:
    return b'{"result":' + model.model_dump_json(by_alias=True).encode() + b"}\n"


async def in_thread(items: Iterator[Item], at_once: int = 500) -> AsyncIterator[list[Item]]:
    """Items of a blocking iterator, many at a time, read in a thread."""
    while chunk := await asyncio.to_thread(lambda: list(islice(items, at_once))):
        yield chunk


class Stream(StreamingResponse):
    """Ends when its client's login does, when the user is deactivated, and when their roles change."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(chunks, media_type="application/json")
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body_iterator = _lines(self._permitted(scope))
        await super().__call__(scope, receive, send)

    async def _permitted(self, scope: Scope) -> AsyncIterator[bytes]:
        """Raises: Unauthorized, RunOver, Forbidden."""
        auth: Auth = scope["app"].state.services.auth
        state, checked = scope["state"], time.monotonic()
        async for chunk in self._chunks:
            if time.monotonic() - checked >= CHECKED and GRANT not in state:
                if await asyncio.to_thread(auth.principal, state["token"]) != state["principal"]:
                    raise Forbidden("the roles of this user have changed: request this again")
                checked = time.monotonic()
            yield chunk


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            if chunk:
                yield chunk
    except Exception as error:  # the status has gone out already: a reader must see that this is not the end
        if not isinstance(error, DethpcError):
            _log.exception("a stream broke")
        status = HTTPStatus(getattr(error, "status", None) or 500)
        message = {
            "grpcCode": {401: 16, 403: 7, 410: 9}.get(status, 13),
            "httpCode": status,
            "httpStatus": status.phrase,
            "message": str(error) or repr(error),
        }
        yield json.dumps({"error": message}).encode() + b"\n"


def following(
    store: ReadStore,
    period: float,
    over: Callable[[Connection], bool],
    look: Callable[[Connection], Sequence[BaseModel]],
) -> StreamingResponse:
    """What ``look`` finds, and with a period again what is new, until there will be no more. What it raises the first time is an
    answer of its own."""

    def read() -> tuple[Sequence[BaseModel], bool]:
        with store.read() as connection:
            last = not period or over(connection)
            return look(connection), last

    first = read()

    async def lines() -> AsyncIterator[bytes]:
        models, last = first
        while True:
            for model in models:
                yield line(model)
            if last:
                return
            await asyncio.sleep(period)
            yield b""
            models, last = await asyncio.to_thread(read)

    return Stream(lines())


def when_changed(look: Callable[[Connection], Item]) -> Callable[[Connection], list[Item]]:
    """What it finds, unless that is what it found the last time."""
    previous: list[Item] = []

    def changed(connection: Connection) -> list[Item]:
        answer = look(connection)
        if previous == [answer]:
            return []
        previous[:] = [answer]
        return [answer]

    return changed
