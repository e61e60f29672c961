"""Browsers at the services of tasks: each service has an origin of its own, whose name is derived from the home's token.

What a service serves is hostile to the master's pages: code of a task, or what somebody put there. So it never has their origin,
and the pages and the REST API never answer under its name. A client that may use the service gets a ticket, which is valid once.
The origin exchanges it for a cookie, which opens this one service and ends with the master's process: who takes over its port
receives nothing that is still valid.

Requests under these names come to ``OriginMiddleware``, which lets some in and tells the others why not.

Where the site says ``shared``, there are no such names, and services are opened below ``/proxy/`` on the master's own origin.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import re
import secrets
import threading
import time
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dethpc.domain.records import User
from dethpc.domain.roles import Role
from dethpc.errors import DethpcError, NotFound, Refused, Unauthorized
from dethpc.master.durable.records import Records
from dethpc.master.http.auth import Auth
from dethpc.master.http.codes import OneTimeCodes, digest
from dethpc.master.http.limits import CLIENT, Client
from dethpc.master.http.middleware import PROXY, bearer, is_proxy, recognise
from dethpc.master.proxy import fields, forwarding
from dethpc.master.proxy.forwarding import Request
from dethpc.master.proxy.relays import Relays, Service, ServiceUnavailable
from dethpc.web.access import split, where

SHARED = "shared"
LOCAL = "*.localhost"
ENTER = "/.dethpc/enter"
"""Where an origin takes a ticket. Services cannot have this path."""

LONGEST = 7 * 24 * 3600.0
"""Seconds for which a cookie is valid."""

AGAIN = "open the task once more, with det or from the master's pages"

_MOST = 1000  # cookies at a time; the oldest go first
_PREFIX = "task-"
_PLAIN = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Ticket(NamedTuple):
    """``workspaces``: of the task; the user has to be an editor there. ``landing``: the path to which the browser goes first."""

    service: Service
    workspaces: frozenset[int]
    user_id: int
    landing: str
    made_at: float  # by the monotonic clock


@dataclass(frozen=True, slots=True)
class Visit:
    """What a cookie opens."""

    service: Service
    workspaces: frozenset[int]
    user_id: int
    made_at: float  # of its ticket

    @property
    def until(self) -> float:
        return self.made_at + LONGEST


class Origins:
    """May be called from any thread. ``pattern``: the site's host names, whose ``*`` is the label, or ``shared``."""

    def __init__(self, auth: Auth, records: Records, pattern: str) -> None:
        self._auth, self._records = auth, records
        self.shared = pattern == SHARED
        self._patterns = [LOCAL] if self.shared else list(dict.fromkeys((LOCAL, pattern)))
        self._key = auth.derived_key("proxy origins")
        self._tickets = OneTimeCodes(AGAIN)
        self._visits: dict[str, Visit] = {}  # by the digest of the cookie
        self._lock = threading.Lock()
        domains = "|".join(re.escape(pattern[1:]) for pattern in self._patterns)
        self._names = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}({domains})")

    def is_one(self, host: str) -> bool:
        """Whether ``host``, without a port, is the name of an origin, perhaps of a service that has ended."""
        return self._names.fullmatch(host) is not None

    def host(self, service: Service) -> str:
        """Its name for a browser that comes by loopback, through a tunnel or on this machine."""
        return LOCAL.replace("*", self._label(service))

    def site_host(self, service: Service) -> str:
        """Its name for every other browser; "" where the site has none."""
        return self._patterns[1].replace("*", self._label(service)) if len(self._patterns) > 1 else ""

    def belongs(self, host: str, service: Service) -> bool:
        return hmac.compare_digest(host.partition(".")[0].encode("latin-1", "replace"), self._label(service).encode())

    def _label(self, service: Service) -> str:
        return _PREFIX + hmac.digest(self._key, service.name.encode(), "sha256")[:16].hex()

    # --- tickets and cookies

    def ticket(self, service: Service, workspaces: frozenset[int], user_id: int, landing: str, peer: str) -> str:
        """The path, with a query, that a browser opens once. ``landing``: a path of the service; "" for where it begins."""
        begin = f"{PROXY}/{service.name}/"
        landing = landing or (begin if service.own_prefix else "/")
        if self.shared and not service.own_prefix:
            landing = begin + landing[1:]
        code = self._tickets.make(peer, Ticket(service, workspaces, user_id, landing, time.monotonic()))
        return f"{begin[:-1] if self.shared else ''}{ENTER}?ticket={code}"

    def redeem(self, code: str, peer: str) -> tuple[Ticket, str]:
        """With the value of a cookie. Raises Unauthorized."""
        ticket: Ticket = self._tickets.redeem(code, peer)
        if not self.may_act(ticket):
            raise Unauthorized("the login that asked for this link has ended", 401)
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._visits) >= _MOST:
                self._visits.pop(next(iter(self._visits)))
            self._visits[digest(cookie)] = Visit(*ticket[:3], ticket.made_at)
        return ticket, cookie

    def visit(self, cookies: list[str]) -> Visit | None:
        """What one of these values opens, for a user who may still do what it takes. May read the database."""
        for cookie in cookies:
            visit = self._visits.get(digest(cookie))
            if visit is not None and visit.until > time.monotonic() and self.may_act(visit):
                return visit
        return None

    def may_act(self, grant: Ticket | Visit) -> bool:
        """Whether the user may, and no login of theirs has ended since: it may be the one that asked for the ticket."""
        if self._auth.last_end(grant.user_id) >= grant.made_at:
            return False
        try:
            who = self._auth.principal_of(self._records.get(User, grant.user_id))
        except Unauthorized:
            return False
        return who.role_in_all(grant.workspaces) >= Role.EDITOR


class OriginMiddleware:
    """Serves the origins of services. The application behind it never gets a request to one of their names."""

    def __init__(self, app: ASGIApp, origins: Origins, relays: Relays) -> None:
        self.app, self._origins, self._relays = app, origins, relays

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif any(self._origins.is_one(name) for name in _names(scope)):
            await self._serve(scope, receive, send, "")
        elif self._origins.shared and is_proxy(scope["path"]) and not bearer(dict(scope["headers"])):
            name = scope["raw_path"].split(b"/")[2].decode("latin-1")
            await self._serve(scope, receive, send, f"{PROXY}/{name}")
        else:
            await self.app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, below: str) -> None:
        """``below``: the path of the service on the master's own origin, "" on one of its own."""
        request = HttpRequest(scope)
        try:
            if scope["path"] == below + ENTER:
                response: Response | None = await self._enter(request, below)
            elif (visit := await self._visit(request, below)) is None:
                recognise(scope["state"], False)
                response = _page(401, f"This browser has not been let in here, or the master was restarted: {AGAIN}.")
            else:
                recognise(scope["state"], True)
                response = await self._forward(request, visit, receive, send, below)
        except DethpcError as error:
            response = _failed(request, error)
        if response is not None:
            await response(scope, receive, send)

    async def _enter(self, request: HttpRequest, below: str) -> Response:
        """Raises Unauthorized."""
        client: Client | None = request.scope["state"].get(CLIENT)
        ticket, cookie = self._origins.redeem(request.query_params.get("ticket", ""), client.peer if client else "")
        scheme, host, _ = where(request)
        if not below and not self._origins.belongs(host, ticket.service):
            raise Unauthorized("this link belongs to another task", 401)
        response = RedirectResponse(ticket.landing, 303, dict(_PLAIN))
        response.set_cookie(
            fields.COOKIE.decode(),
            cookie,
            int(LONGEST),
            path=f"{PROXY}/{ticket.service.name}/" if below else "/",
            secure=scheme == "https",
            httponly=True,
            samesite="lax",
        )
        return response

    async def _visit(self, request: HttpRequest, below: str) -> Visit | None:
        cookies = fields.cookies(request.scope["headers"])
        visit = await asyncio.to_thread(self._origins.visit, cookies) if cookies else None
        if visit is None:
            return None
        hosts = [name for name in _names(request.scope) if self._origins.is_one(name)]
        belongs = all(self._origins.belongs(host, visit.service) for host in hosts)
        return visit if belongs and (not below or below == f"{PROXY}/{visit.service.name}") else None

    async def _forward(
        self, request: HttpRequest, visit: Visit, receive: Receive, send: Send, below: str
    ) -> Response | None:
        """Raises NotFound, Refused, ServiceUnavailable."""
        if _comes_from_elsewhere(request):
            return _page(403, "Another site asks for this, and is not answered.")
        scope = request.scope
        service = await self._relays.service(visit.service.task, visit.service.port)
        scheme, host, port = where(request)
        prefix = "" if service.own_prefix else below
        client = scope["client"][0] if scope["client"] else ""
        front = fields.Front(scheme, host + port, client, prefix, f"{below}/")
        path, query = scope["raw_path"][len(prefix) :] or b"/", scope["query_string"]
        target = path + (b"?" + query if query else b"")
        passed = {**scope, "headers": fields.without_cookie(scope["headers"])}
        permitted = partial(asyncio.to_thread, self._origins.may_act, visit)
        passed_on = Request(passed, target, front, frozenset(), permitted)
        await forwarding.forward(passed_on, self._relays, service, receive, send)
        return None


def _names(scope: Scope) -> list[str]:
    """The host names by which the client, and a reverse proxy before it, say that they ask."""
    named = [value for name, value in scope["headers"] if name in (b"host", b"x-forwarded-host")]
    return [split(name)[0] for value in named for name in value.decode("latin-1").split(",")]


def _comes_from_elsewhere(request: HttpRequest) -> bool:
    """Whether a page of another origin sends this request. It may lead the browser here, and no more."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() not in _own_names(request):
        return True
    site, mode = request.headers.get("sec-fetch-site", ""), request.headers.get("sec-fetch-mode", "")
    leads = mode == "navigate" and request.method in ("GET", "HEAD")
    return site in ("same-site", "cross-site") and not leads


def _own_names(request: HttpRequest) -> set[str]:
    _, host, port = where(request)
    return {host + port, request.headers.get("host", "").lower()}


def _failed(request: HttpRequest, error: DethpcError) -> Response:
    statuses: list[tuple[Any, int]] = [(Unauthorized, 401), (NotFound, 404), (Refused, 409), (ServiceUnavailable, 502)]
    status = next((status for kind, status in statuses if isinstance(error, kind)), 503)
    response = _page(status, str(error))
    if status in (409, 502, 503) and request.method == "GET":
        response.headers["Refresh"] = "5"  # it may be starting
    return response


def _page(status: int, message: str) -> Response:
    title = HTTPStatus(status).phrase
    text = f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1><p>{html.escape(message)}</p>"
    return HTMLResponse(text, status, dict(_PLAIN))
