"""Authentication middleware: checks the token of a request before its body is read. Lists the few public paths."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from dethpc.client import proof
from dethpc.errors import RunOver, StoreUnavailable, Unauthorized
from dethpc.master.http.auth import Auth, Principal
from dethpc.master.http.connection import VISIT
from dethpc.master.http.door import Visit
from dethpc.master.http.page_sessions import Grant, PageSession
from dethpc.web.access import split

log = logging.getLogger(__name__)

PAGE_FILES = "/docs/files"
"""Where the files lie that the page ``/docs`` is made of."""

PUBLIC = frozenset(
    {
        "/",
        "/info",
        "/health",
        "/api/v1/master",
        "/api/v1/master/telemetry",
        "/api/v1/auth/login",
        proof.PATH,
        "/docs",
        f"{PAGE_FILES}/swagger-ui-bundle.js",
        f"{PAGE_FILES}/swagger-ui.css",
        f"{PAGE_FILES}/favicon.png",
        "/openapi.json",
    }
)
PAGES = "/det"
"""Below which the web pages lie. A browser shows its login there in a cookie, and nowhere else; the pages themselves say what
needs one."""

GRANT = "grant"
"""Where the state of a request holds what a page of this master shows in the place of a token. Servers fill the state, clients
cannot."""

_LOOKS = re.compile(r"/api/v1/(preview-hp-search|experiments/\d+/file|experiments-search|runs|(roles|groups)/search.*)")
"""What changes nothing, although it is no GET."""

_HEADERS = (b"authorization", b"grpc-metadata-x-allocation-token")


_AWAY = "the database server does not answer"
"""The error says more, such as the server's address: that is for the log, and nobody knows yet who asks."""


class AuthMiddleware:
    """Puts the ``Principal`` into the request's state, or answers why there is none."""

    def __init__(self, app: ASGIApp, auth: Auth, cookie: str = "") -> None:
        """``cookie``: the name of that which logs a browser in. Pages alone take it."""
        self.app, self.auth, self._cookie = app, auth, cookie.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        pages = is_page(scope["path"])
        if scope["method"] == "HEAD" and not pages:
            # The server leaves the body out. Pages know HEAD themselves: who only looks at a link has not used it.
            scope = {**scope, "method": "GET"}
        headers = dict(scope["headers"])
        public = scope["path"] in PUBLIC
        token = "" if pages else bearer(headers)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["token"] = token
        grant: Grant | None = state.get(GRANT)
        if pages:
            state["login"] = await self._login(headers)
            _recognise(state, state["login"] is not None)
        elif grant is not None:
            if not grant.allows(scope["method"], scope["path"]):
                await refuse(send, 403, 7, "a page has to show more than its cookie for this")
                return
            state["principal"] = grant.principal
        elif not public:
            try:
                state["principal"] = await self._principal(token)
            except Unauthorized as error:
                _recognise(state, False)
                await refuse(send, 401, 16, str(error))
                return
            except RunOver as error:
                _recognise(state, False)
                await refuse(send, 410, 9, str(error))
                return
            except StoreUnavailable:
                _recognise(state, False)
                await refuse(send, 503, 14, _AWAY)
                return
            _recognise(state, True)
        self._note(scope)
        if b"content-type" not in headers:
            # Determined's clients send JSON without saying so. Tokens travel in a header that no foreign web page can set,
            # so nothing is lost by believing them.
            scope = {**scope, "headers": [*scope["headers"], (b"content-type", b"application/json")]}
        await self.app(scope, receive, send)

    async def _login(self, headers: dict[bytes, bytes]) -> PageSession | None:
        """Whose browser asks for a page; None: nobody's who is logged in."""
        shown = cookie(headers, self._cookie)
        return await asyncio.to_thread(self.auth.pages.find, shown, host_name(headers)) if shown else None

    def _note(self, scope: Scope) -> None:
        """Write into the master's log what others than the owner ask it to do."""
        who: Principal | None = scope["state"].get("principal")
        looks = scope["method"] in ("GET", "HEAD") or _LOOKS.fullmatch(scope["path"]) is not None
        if who is not None and not who.is_run and who.username != self.auth.owner and not looks:
            log.info("user %s asks for %s %s", who.username, scope["method"], scope["path"])

    async def _principal(self, token: str) -> Principal:
        principal = self.auth.remembered(token)
        return principal if principal is not None else await asyncio.to_thread(self.auth.principal, token)


def is_page(path: str) -> bool:
    return path == PAGES or path.startswith(f"{PAGES}/")


def cookie(headers: dict[bytes, bytes], cookie_name: bytes) -> str:
    """The login that a browser shows, "" when it has none."""
    for pair in headers.get(b"cookie", b"").split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == cookie_name:
            return value.decode("latin-1")
    return ""


def host_name(headers: dict[bytes, bytes]) -> str:
    """The host name under which a browser asks: a reverse proxy says under which it was asked itself."""
    host = headers.get(b"x-forwarded-host", b"").partition(b",")[0] or headers.get(b"host", b"")
    return split(host.decode("latin-1"))[0]


def _recognise(state: dict[str, Any], authenticated: bool) -> None:
    visit: Visit | None = state.get(VISIT)
    if visit is not None:
        visit.known = authenticated


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
    reasons = {
        401: "Unauthenticated",
        403: "PermissionDenied",
        410: "FailedPrecondition",
        413: "InvalidArgument",
        503: "Unavailable",
    }
    body = json.dumps(error_body(code, reasons[status], message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
