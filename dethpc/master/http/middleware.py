"""The door: every request shows a token before any of its body is read. Public are a handful of paths, listed here."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dethpc.client import proof
from dethpc.errors import Unauthorized
from dethpc.master.http.auth import Auth, Principal

PAGE_FILES = "/docs/files"
"""Where the files lie that the page ``/docs`` is made of."""

PUBLIC = frozenset(
    {
        "/",
        "/info",
        "/api/v1/master",
        "/api/v1/master/telemetry",
        "/api/v1/master/cluster_message",
        "/api/v1/auth/login",
        proof.PATH,
        "/docs",
        f"{PAGE_FILES}/swagger-ui-bundle.js",
        f"{PAGE_FILES}/swagger-ui.css",
        f"{PAGE_FILES}/favicon.png",
        "/openapi.json",
    }
)
MAX_BODY = 256 << 20
"""Bytes: a context directory of 95 MiB in base64, twice over."""

_HEADERS = (b"authorization", b"grpc-metadata-x-allocation-token")


class AuthMiddleware:
    """Puts the ``Principal`` into the request's state, or answers 401."""

    def __init__(self, app: ASGIApp, auth: Auth) -> None:
        self.app, self.auth = app, auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > MAX_BODY:
            await refuse(send, 413, 3, "the request is too large")
            return
        token = bearer(headers)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["token"] = token
        if scope["path"] not in PUBLIC:
            try:
                state["principal"] = await self._principal(token)
            except Unauthorized as error:
                await refuse(send, 401, 16, str(error))
                return
        if b"content-type" not in headers:
            # Determined's clients send JSON without saying so. Tokens travel in a header that no foreign web page can set,
            # so nothing is lost by believing them.
            scope = {**scope, "headers": [*scope["headers"], (b"content-type", b"application/json")]}
        await self.app(scope, _counted(receive), send)

    async def _principal(self, token: str) -> Principal:
        known = self.auth.remembered(token)
        return known if known is not None else await asyncio.to_thread(self.auth.principal, token)


def _counted(receive: Receive) -> Receive:
    """``receive`` that takes a body which grows too large, its length unsaid, for a client that went away."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        return message if size <= MAX_BODY else {"type": "http.disconnect"}

    return counted


def bearer(headers: dict[bytes, bytes]) -> str:
    """The token of a request, "" when it has none."""
    for name in _HEADERS:
        scheme, _, token = headers.get(name, b"").decode("latin-1").partition(" ")
        if scheme.lower() == "bearer" and token:
            return token.strip()
    return ""


def error_body(code: int, reason: str, message: str, **more: Any) -> dict[str, Any]:
    """An error as Determined's gateway spells it; ``code`` is gRPC's."""
    return {"error": {"code": code, "reason": reason, "error": message, **more}}


async def refuse(send: Send, status: int, code: int, message: str) -> None:
    body = json.dumps(error_body(code, {401: "Unauthenticated", 413: "InvalidArgument"}[status], message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
