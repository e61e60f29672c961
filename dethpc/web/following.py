"""The log of what runs: the master's own stream, passed on as server-sent events.

A quiet log blocks no thread, and a slow browser slows the reading of files down: at most ``AHEAD`` pieces are buffered.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

from dethpc.client.in_process import App, Message, http_scope

AHEAD = 4
"""Pieces of a stream that may wait for the browser. The master's have a mebibyte of a log at most."""

LARGE = 64 << 10
"""Bytes of a piece that a thread takes apart, so that the loop goes on to answer."""

BEAT = 20.0
"""Seconds after which a quiet stream says that it is there, so that proxies leave it open."""

LONGEST = 300.0
"""Seconds after which a stream ends and the browser asks again, where it stopped: a login that was ended reads no further then."""

LONGEST_LINE = 4000
"""Characters of a line that a page shows: a progress bar that ends no line may have millions. A download has all."""

HERE = b": here\n\n"

_FOR_TERMINALS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""Colours, titles and movements that a program tells a terminal."""


class NotFollowed(Exception):
    """The master refused, with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def events(app: App, target: str, state: Mapping[str, object]) -> AsyncGenerator[bytes]:
    """The lines at ``target`` of the API; ``state`` goes with the request.

    An event ``lines`` holds rows as ``row`` makes them; its id is the time of the last one. ``over`` comes when it has ended
    and all was said, ``refused`` with a status when the master follows nothing.
    """
    yield b"retry: 2000\n\n"
    until = time.monotonic() + LONGEST
    try:
        async with aclosing(_pieces(app, target, state)) as pieces:
            rest = b""
            async for piece in pieces:
                if not piece:
                    yield HERE
                whole, _, rest = (rest + piece).rpartition(b"\n")
                if whole:
                    yield _event(whole) if len(whole) < LARGE else await asyncio.to_thread(_event, whole)
                if time.monotonic() > until:
                    return
        yield b"event: over\ndata:\n\n"
    except NotFollowed as error:
        if error.status >= 500:
            return  # the browser asks again
        yield f"event: refused\ndata: {error.status}\n\n".encode()


async def _pieces(app: App, target: str, state: Mapping[str, object]) -> AsyncGenerator[bytes]:
    """The answer as it comes; an empty piece after each ``BEAT`` of silence. Who stops to read ends the request."""
    messages: asyncio.Queue[Message] = asyncio.Queue(AHEAD)
    gone = asyncio.Event()
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = http_scope("GET", target, {}, state)
    task = asyncio.ensure_future(app(scope, receive, messages.put))
    try:
        while True:
            message = await _next(messages, task)
            if message is None:
                yield b""
            elif message["type"] == "http.response.start":
                if message["status"] != 200:
                    raise NotFollowed(message["status"])
            else:
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body"):
                    return
    finally:
        gone.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _next(messages: asyncio.Queue[Message], task: asyncio.Future[None]) -> Message | None:
    """None after a while of silence. Raises NotFollowed when the answer broke off."""
    getting = asyncio.ensure_future(messages.get())
    try:
        await asyncio.wait(
            {getting, cast("asyncio.Future[Message]", task)}, timeout=BEAT, return_when=asyncio.FIRST_COMPLETED
        )
        if getting.done():
            return getting.result()
        if not messages.empty():
            return messages.get_nowait()
        if task.done():
            raise NotFollowed(500)
        return None
    finally:
        getting.cancel()


def _event(lines: bytes) -> bytes:
    rows = []
    for text in lines.split(b"\n"):
        result = json.loads(text).get("result")
        if result is None:  # the stream broke in the middle of the log
            raise NotFollowed(500)
        rows.append(row(result))
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return b"id: " + str(rows[-1]["at"]).encode() + b"\nevent: lines\ndata: " + data + b"\n\n"


def row(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the API as a page shows it."""
    level = (line.get("level") or "").rpartition("LOG_LEVEL_")[2]
    return {
        "id": str(line.get("id", "")),
        "at": line["timestamp"],
        "clock": line["timestamp"][11:19],
        "level": level or "INFO",
        "rank": line.get("rankId"),
        "node": line.get("agentId") or "",
        "text": _shown((line.get("log") or line["message"]).rstrip("\n")),
    }


def _shown(text: str) -> str:
    text = _FOR_TERMINALS.sub("", text)
    beyond = len(text) - LONGEST_LINE
    return f"{text[:LONGEST_LINE]} … and {beyond:,} more characters" if beyond > 0 else text
