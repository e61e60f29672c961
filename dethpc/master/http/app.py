"""The web application: its routes, the middleware in front of them, and how exceptions become responses."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp

from dethpc import errors
from dethpc.master.http.auth import Forbidden
from dethpc.master.http.middleware import PAGE_FILES, PAGES, PROXY, AuthMiddleware, BodyLimits, error_body
from dethpc.master.http.nouns import ROUTERS, cluster_messages
from dethpc.master.http.passwords import TooManyLogins
from dethpc.master.http.preemptions import Preemptions
from dethpc.master.http.service import Services
from dethpc.master.proxy.origins import OriginMiddleware
from dethpc.master.proxy.paths import Paths
from dethpc.master.proxy.relays import ServiceBusy, ServiceUnavailable
from dethpc.web.app import Pages

_log = logging.getLogger(__name__)

_ANSWERS: list[tuple[type[Exception], int, int, str]] = [
    # the exception, HTTP status, gRPC code, gRPC name; the first that fits counts
    (errors.ConfigError, 400, 3, "InvalidArgument"),
    (errors.ContextError, 400, 3, "InvalidArgument"),
    (errors.NotFound, 404, 5, "NotFound"),
    (errors.AlreadyExists, 409, 6, "AlreadyExists"),
    (errors.Refused, 400, 9, "FailedPrecondition"),
    (errors.CheckpointNotFound, 404, 5, "NotFound"),
    (errors.CheckpointError, 400, 9, "FailedPrecondition"),
    (errors.NotSupportedYet, 501, 12, "Unimplemented"),
    (errors.Unauthorized, 401, 16, "Unauthenticated"),
    (TooManyLogins, 429, 8, "ResourceExhausted"),
    (Forbidden, 403, 7, "PermissionDenied"),
    (errors.RunOver, 410, 9, "FailedPrecondition"),
    (errors.SchedulerUnavailable, 503, 14, "Unavailable"),
    (errors.SubmitDeferred, 503, 14, "Unavailable"),
    (errors.StoreUnavailable, 503, 14, "Unavailable"),
    (errors.LeaseHeld, 503, 14, "Unavailable"),
    (ServiceUnavailable, 502, 14, "Unavailable"),
    (ServiceBusy, 503, 14, "Unavailable"),
    (errors.DethpcError, 500, 13, "Internal"),
]

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


_BINDINGS = "pools are bound to no workspace: every workspace may use each of them"
_KUBERNETES = "this cluster runs Slurm, and no Kubernetes"
_OURS = "jobs of dethpc do not start, meet or end by this request, but by their run directory (docs/run-directory.md)"

_UNSERVED: dict[str, str] = {
    # endpoints of Determined's API that this one does not serve, each with a sentence for the user of a client:
    # a regular expression of the beginning of paths, up to a "/"; the first that fits counts
    r"/api/v1/allocations": _OURS,
    r"/api/v1/(k8s-resource-managers|namespace-bindings)": _KUBERNETES,
    r"/api/v1/workspaces/[^/]+/((list-)?namespace-bindings|get-k8s-resource-quotas|set-resource-quota)": _KUBERNETES,
    r"/api/v1/resource-pools/[^/]+/workspace-bindings": _BINDINGS,
    r"/users": "users have API v1 alone: /api/v1/users",
}
_SENTENCES = [(re.compile(f"(?:{beginning})(?:/|$)"), sentence) for beginning, sentence in _UNSERVED.items()]


def create_app(services: Services) -> FastAPI:
    """The master's REST API, documented at ``/docs``. That page loads nothing from other servers: clusters are often offline."""
    app: FastAPI = FastAPIOffline(
        title="dethpc",
        version=services.installation.version,
        summary="Determined's REST API v1 on Slurm",
        redoc_url=None,
        static_url=PAGE_FILES,
    )
    app.state.services = services
    app.state.preemptions = Preemptions(services.doorbell.stop_reason)
    app.state.commits = services.commits
    app.state.ring_bytes = 0
    app.state.describing = asyncio.Lock()
    app.router.routes.insert(0, Route(str(app.openapi_url), _described))
    app.add_exception_handler(errors.DethpcError, _failed)
    app.add_exception_handler(RequestValidationError, _misshaped)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    for unfit in (OverflowError, UnicodeEncodeError):  # of a database or the calendar, for what no column or date holds
        app.add_exception_handler(unfit, _unfit)
    app.add_exception_handler(Exception, _unforeseen)
    # Browsers tell servers on one host apart by no port: who looks at two masters through ssh -L is logged in to both.
    cookie = f"dethpc_session_{services.installation.cluster_id[:8]}"
    app.mount(PAGES, _pages(app, services, cookie))
    app.mount(PROXY, Paths(services.relays, services.auth))
    for router in ROUTERS:
        app.router.routes += router.routes  # to include the router would make each of its routes once more
    app.add_middleware(BodyLimits)
    app.add_middleware(AuthMiddleware, auth=services.auth, cookie=cookie)
    app.add_middleware(OriginMiddleware, origins=services.origins, relays=services.relays)
    return app


def _pages(app: FastAPI, services: Services, cookie: str) -> ASGIApp:
    foreign_runs, installation = services.foreign_runs, services.installation

    def notice() -> str:
        trouble = f"The master answers, and {installation.trouble}." if installation.trouble else ""
        replaced = f"Note: {installation.replaced}." if installation.replaced else ""
        message = cluster_messages.current(services.records)
        parts = (
            message.message if message is not None else "",
            trouble,
            foreign_runs.notice,
            services.cluster.notice,
            replaced,
        )
        return " ".join(filter(None, parts))

    return Pages(app, services.commits, services.auth.pages, installation.version, cookie, notice).application()


async def _described(request: Request) -> StreamingResponse:
    """The OpenAPI document, made once and sent in pieces: strangers who read it slowly, or not at all, hold no copies."""
    state = request.app.state
    async with state.describing:
        if not hasattr(state, "description"):
            description = await asyncio.to_thread(request.app.openapi)
            state.description = json.dumps(description, separators=(",", ":")).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(state.description), _PIECE):
            yield state.description[start : start + _PIECE]

    return StreamingResponse(pieces(), media_type="application/json")


_PIECE = 16 << 10  # bytes


def _failed(request: Request, error: Exception) -> JSONResponse:
    status, code, reason = next(row[1:] for row in _ANSWERS if isinstance(error, row[0]))
    if status >= 500 and not isinstance(error, errors.NotSupportedYet):
        of_task = isinstance(
            error, (ServiceUnavailable, ServiceBusy)
        )  # which may be about to begin: no fault of the master's
        level = logging.INFO if of_task else logging.ERROR
        _log.log(level, "%s %s failed: %s", request.method, request.url.path, error)
    more: dict[str, Any] = {}
    if isinstance(error, errors.ConfigError):
        more["problems"] = [problem.to_json() for problem in error.problems]
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, TooManyLogins) else None
    message = str(error)
    if isinstance(error, errors.SchedulerUnavailable):
        message = f"the scheduler does not answer; try again when it does ({message})"
    return JSONResponse(error_body(code, reason, message, **more), status, headers)


def _misshaped(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    places = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
    return JSONResponse(error_body(3, "InvalidArgument", "; ".join(places)), 400)


def _unfit(request: Request, error: Exception) -> JSONResponse:
    _log.info("%s %s: %s", request.method, request.url.path, error)
    fitting = f"whole numbers up to {2**63 - 1}, text that UTF-8 can write and dates from year 1 to 9999 are possible"
    message = f"{request.method} {request.url.path}: a number or a text in it is out of range; {fitting}"
    return JSONResponse(error_body(3, "InvalidArgument", message), 400)


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405) and (why := _why_not(request.url.path)) is not None:
        return JSONResponse(error_body(12, "Unimplemented", f"{request.method} {request.url.path}: {why}"), 501)
    code, reason = {404: (5, "NotFound"), 405: (12, "Unimplemented")}.get(error.status_code, (2, "Unknown"))
    message = f"{request.method} {request.url.path}: {error.detail or HTTPStatus(error.status_code).phrase}"
    return JSONResponse(error_body(code, reason, message), error.status_code, error.headers)


def _why_not(path: str) -> str | None:
    """Why there is no answer to any request at ``path`` that no route serves; None where Determined has none either."""
    return next((sentence for pattern, sentence in _SENTENCES if pattern.match(path)), None)


def _gone(request: Request, error: Exception) -> Response:
    """Who has hung up hears nothing; the limits may have told that the body is too large."""
    return Response(status_code=400)


def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    _log.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    message = f"{type(error).__name__}; see the master's log"
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        home = (
            request.app.state.services.installation.home.root
        )  # an error of write() names no file: it is one of these
        place = error.filename or home
        message = f"{place}: {error.strerror}. Make room, or make it writable, then try again. Trials go on meanwhile"
    elif isinstance(error, OSError) and error.strerror:
        message = f"{type(error).__name__}: {error.strerror}; see the master's log"
    if replaced := request.app.state.services.installation.replaced:
        message = f"{message}. Note: {replaced}"
    return JSONResponse(error_body(13, "Internal", message), 500)
