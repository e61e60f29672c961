"""The way of requests that trials make hundreds of times a second and of those that only read, past everything that FastAPI works
through for each request, which takes longer than most of them do themselves: through the same gate and the same limits to
``routes.direct`` and ``routes.reads``.

The first request for a noun brings its routes into the application. Errors become answers by the application's own handlers.
Behind each path lies the route that /docs describes, which does the same.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from dethpc.master.http.auth import Auth
from dethpc.master.http.bodies import BodyLimits
from dethpc.master.http.middleware import AuthMiddleware, is_page
from dethpc.master.http.routes import direct
from dethpc.master.http.routes.on_demand import Nouns
from dethpc.master.http.routes.reads import LongWay

_ACT = "dethpc.direct"


class Straight:
    """In front of ``otherwise``, which is ``app`` with all its middleware."""

    def __init__(self, app: FastAPI, otherwise: ASGIApp, auth: Auth, nouns: Nouns) -> None:
        self._handlers: dict[Any, Any] = app.exception_handlers
        self._otherwise = otherwise
        self._nouns = nouns
        self._gate = AuthMiddleware(BodyLimits(self._answer), auth)
        self._porch = AuthMiddleware(self._bring, auth)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The server leaves the body out. Pages know HEAD themselves: who only looks at a link has not used it.
        if scope["type"] == "http" and scope["method"] == "HEAD" and not is_page(scope["path"]):
            scope = {**scope, "method": "GET"}
        if scope["type"] == "http" and self._nouns.lacks(scope["path"]):
            await self._porch(scope, receive, send)
            return
        reads = self._nouns.reads(scope["path"]) if scope["type"] == "http" else None
        found = (direct.find(scope) or reads.find(scope)) if reads is not None else None
        if found is None:
            await self._otherwise(scope, receive, send)
            return
        scope[_ACT], scope["path_params"] = found
        await self._gate(scope, receive, send)

    async def _bring(self, scope: Scope, receive: Receive, send: Send) -> None:
        """In a thread, and behind a gate: nobody else waits, and no stranger is worth it."""
        await asyncio.shield(asyncio.wrap_future(self._nouns.bring(scope["path"])))
        await self(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            content = await scope[_ACT](request)
        except LongWay:
            await self._otherwise(scope, receive, send)
            return
        except ClientDisconnect:  # nobody is left to be told, or the limits have told that the body is too large
            return
        except Exception as error:
            handle = next(self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers)
            await handle(request, error)(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})
