"""Streamed responses in newline-delimited JSON, as Determined's gateway sends them. A quiet stream holds no thread."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy import Connection

from dethpc.errors import DethpcError
from dethpc.state.store import SqlStore

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

PAUSE = 0.5
"""Seconds between two looks at something that is followed."""


def line(model: BaseModel) -> bytes:
    return b'{"result":' + model.model_dump_json(by_alias=True).encode() + b"}\n"


async def in_thread(items: Iterator[Item], at_once: int = 500) -> AsyncIterator[list[Item]]:
    """Items of a blocking iterator, many at a time, read in a thread."""
    while chunk := await asyncio.to_thread(lambda: list(islice(items, at_once))):
        yield chunk


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    except Exception as error:  # the status has gone out already: a reader must see that this is not the end
        if not isinstance(error, DethpcError):
            _log.exception("a stream broke")
        message = {
            "grpcCode": 13,
            "httpCode": 500,
            "httpStatus": "Internal Server Error",
            "message": str(error) or repr(error),
        }
        yield json.dumps({"error": message}).encode() + b"\n"


def following(
    store: SqlStore,
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
            models, last = await asyncio.to_thread(read)

    return ndjson(lines())


def ndjson(chunks: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(_lines(chunks), media_type="application/json")
