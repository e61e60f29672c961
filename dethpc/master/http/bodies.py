"""How large the body of a request may be that somebody with a token sends, looked at before it is parsed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dethpc.master.http.middleware import MAX_BODY, refuse

WITH_CONTEXT = frozenset({"/api/v1/experiments", "/api/v1/experiments/render"})
"""Paths to which context directories come, in base64."""

MOST_BYTES = 40 << 20
"""Elsewhere: the largest report, quoted as JSON text."""

MOST_VALUES = 1_000_000
"""What a body may hold as JSON: an empty list takes three bytes there, and some twenty times as many in memory."""


def length(request: Request) -> int:
    """Bytes of a request's body, before it is read: as many as may come where that is unsaid."""
    headers = request.headers
    return MOST_BYTES if "transfer-encoding" in headers else int(headers.get("content-length", 0))


class BodyLimits:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(receive, send, MAX_BODY if scope["path"] in WITH_CONTEXT else MOST_BYTES)
        await self.app(scope, body.receive, body.send)


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
            words = f"the request is too large: at most {self._most >> 20} MiB and {MOST_VALUES:,} values here"
            await refuse(self._send, 413, 3, words)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self._refused:
            self._answered = True
            await self._send(message)
