"""Middleware in front of every route: it checks the token of a request before its body is read, and limits the size of the body
while it is received and before it is parsed. Lists the few public paths."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dethpc.client import proof
from dethpc.errors import RunOver, StoreUnavailable, Unauthorized
from dethpc.master.http.auth import Auth, Principal
from dethpc.master.http.limits import CLIENT, Client
from dethpc.master.http.page_sessions import Grant, PageSession
from dethpc.web.access import is_read, split

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

PROXY = "/proxy"
"""Below which the services of tasks are, whose requests and responses are passed on as they are."""

GRANT = "grant"
"""Where the state of a request holds what a page of this master shows in the place of a token. Servers fill the state, clients
cannot."""

_HEADERS = (b"authorization", b"grpc-metadata-x-allocation-token")


_AWAY = "the database server does not answer"
"""The error says more, such as the server's address: that is for the log, and nobody knows yet who asks."""


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
        proxied = is_proxy(scope["path"])
        if scope["method"] == "HEAD" and not pages and not proxied:
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
            recognise(state, state["login"] is not None)
        elif grant is not None:
            if not grant.allows(scope["method"], scope["path"]):
                await refuse(send, 403, 7, "a page has to show more than its cookie for this")
                return
            state["principal"] = grant.principal
        elif not public and (token or not proxied):  # without one, a service may have a login of its own
            try:
                state["principal"] = await self._principal(token)
            except Unauthorized as error:
                recognise(state, False)
                await refuse(send, 401, 16, str(error))
                return
            except RunOver as error:
                recognise(state, False)
                await refuse(send, 410, 9, str(error))
                return
            except StoreUnavailable:
                recognise(state, False)
                await refuse(send, 503, 14, _AWAY)
                return
            recognise(state, True)
        self._note(scope)
        if b"content-type" not in headers and not proxied:
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
        read = is_read(scope["method"], scope["path"])
        if who is not None and not who.is_run and who.username != self.auth.owner and not read:
            log.info("user %s asks for %s %s", who.username, scope["method"], scope["path"])

    async def _principal(self, token: str) -> Principal:
        principal = self.auth.remembered(token)
        return principal if principal is not None else await asyncio.to_thread(self.auth.principal, token)


def is_page(path: str) -> bool:
    return path == PAGES or path.startswith(f"{PAGES}/")


def is_proxy(path: str) -> bool:
    return path.startswith(f"{PROXY}/")


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


def recognise(state: dict[str, Any], authenticated: bool) -> None:
    client: Client | None = state.get(CLIENT)
    if client is not None:
        client.recognise(authenticated)


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
        if scope["type"] != "http" or is_proxy(scope["path"]):  # what is passed on is kept nowhere
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
