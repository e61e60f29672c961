"""Limits on the size of request bodies, enforced while a body is received and before it is parsed."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dethpc.master.http.middleware import PUBLIC, refuse

WITH_CONTEXT = frozenset({"/api/v1/experiments", "/api/v1/experiments/render"})
"""Paths to which context directories come, in base64."""

MOST_BYTES = 40 << 20
"""The largest report, quoted as JSON text."""

MOST_WITH_CONTEXT = 256 << 20
"""Bytes on those paths: a context directory of 95 MiB in base64, twice over."""

MOST_PUBLIC = 64 << 10
"""Bytes on the public paths, where anybody may send some."""

MOST_VALUES = 1_000_000
"""What a body may hold as JSON: an empty list takes three bytes there, and some twenty times as many in memory."""


def length(headers: Headers) -> int:
    """Bytes of a request's body by its ``headers``; 0 where that is unsaid."""
    return int(headers.get("content-length", 0))


def as_json(scope: Scope, receive: Receive) -> Receive:
    """For a route that takes JSON: a body is JSON whatever its content type says, and none is an empty object. Determined's gateway
    reads bodies so, and its client sends nothing in the place of an empty object."""
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    scope["headers"] = [*others, (b"content-type", b"application/json")]
    begun = False

    async def received() -> Message:
        nonlocal begun
        message = await receive()
        if begun or message["type"] != "http.request" or message.get("body") or message.get("more_body"):
            begun = True
            return message
        begun = True
        return {**message, "body": b"{}"}

    return received


class BodyLimits:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = _most(scope["path"])
        if length(Headers(scope=scope)) > most:
            await refuse(send, 413, 3, _too_large(most))
            return
        body = _Body(receive, send, most)
        await self.app(scope, body.receive, body.send)


def _most(path: str) -> int:
    if path in PUBLIC:
        return MOST_PUBLIC
    return MOST_WITH_CONTEXT if path in WITH_CONTEXT else MOST_BYTES


def _too_large(most: int) -> str:
    size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
    return f"the request is too large: at most {size} and {MOST_VALUES:,} values here"


class _Body:
    """Passed on piece by piece. When it grows too large, its sender is told so and nothing else."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive, self._send, self._most = receive, send, most
        self._bytes = self._values = 0
        self._answered = self._refused = False

    async def receive(self) -> Message:
        message = await self._receive()
        piece = message.get("body", b"")
        self._bytes += len(piece)
        self._values += sum(map(piece.count, (b"[", b"{", b",")))
        if self._bytes <= self._most and self._values <= MOST_VALUES:
            return message
        if not self._answered:
            self._answered = self._refused = True
            await refuse(self._send, 413, 3, _too_large(self._most))
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self._refused:
            self._answered = True
            await self._send(message)
