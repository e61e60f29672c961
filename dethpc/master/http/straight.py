"""The way of requests that trials make hundreds of times a second and of those that only read, past everything that FastAPI works
through for each request, which takes longer than most of them do themselves: through the same gate and the same limits to
``routes.direct`` and ``routes.reads``.

Errors become answers by the application's own handlers. Behind each path lies the route that /docs describes, which does the same.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from dethpc.master.http.auth import Auth
from dethpc.master.http.bodies import BodyLimits
from dethpc.master.http.middleware import AuthMiddleware
from dethpc.master.http.routes import ROUTERS, direct
from dethpc.master.http.routes.reads import LongWay, Reads

_ACT = "dethpc.direct"


class Straight:
    """In front of ``otherwise``, which is ``app`` with all its middleware."""

    def __init__(self, app: FastAPI, otherwise: ASGIApp, auth: Auth) -> None:
        self._handlers: dict[Any, Any] = app.exception_handlers
        self._otherwise = otherwise
        self._reads = Reads(ROUTERS)
        self._gate = AuthMiddleware(BodyLimits(self._answer), auth)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = (direct.find(scope) or self._reads.find(scope)) if scope["type"] == "http" else None
        if found is None:
            await self._otherwise(scope, receive, send)
            return
        scope[_ACT], scope["path_params"] = found
        await self._gate(scope, receive, send)

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
