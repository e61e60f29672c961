"""The routes of what trials report while they train, hundreds of times a second: see ``straight``. Each returns its answer's JSON.

Behind each lies the route that /docs describes, which does the same.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from dethpc.errors import NotFound, Refused
from dethpc.master.http.bodies import length
from dethpc.master.http.routes.access import services

Act = Callable[[Request], Awaitable[bytes]]
Body = TypeVar("Body", bound=BaseModel)

_PATHS = re.compile(
    "/api/v1/(?:runs/(?P<run>[^/]+)/attempts/(?P<k>[^/]+)/events|trials/(?P<trial_id>[^/]+)/metrics)", re.DOTALL
)


def find(scope: Scope) -> tuple[Act, dict[str, Any]] | None:
    """What answers a request, and its path's parameters; None: the application does, by all its routes."""
    found = _PATHS.fullmatch(scope["path"]) if scope["method"] == "POST" else None
    if found is None:
        return None
    return (_ring if found["run"] else _report), found.groupdict()


async def _ring(request: Request) -> bytes:
    from dethpc.master.http.routes import runs

    _without_parameters(request)
    doorbell, who = services(request).doorbell, request.state.principal
    return await runs.rung(request.path_params["run"], _number(request, "k"), request, doorbell, who)


async def _report(request: Request) -> bytes:
    from dethpc.master.http.routes import unmanaged
    from dethpc.master.http.wire.unmanaged import MetricsRequest

    _without_parameters(request)
    parts, trial_id = services(request), _number(request, "trial_id")
    room, waiting, size = request.app.state.room, request.app.state.together, length(request)
    metrics = unmanaged.Metrics(parts.store, parts.unmanaged, parts.beside, waiting, request.state.principal)
    await room.enter(size)
    try:
        body = await _read(request, MetricsRequest)
        await metrics.take(trial_id, body.group, body.metrics)
    finally:
        room.leave(size)
    return b"{}"


def _number(request: Request, name: str) -> int:
    """Raises NotFound: nothing has another number than one that a row can hold."""
    text = request.path_params[name]
    if not text.isdecimal() or len(text) > 18:
        raise NotFound(f"{request.url.path} not found: {text[:40]!r} is no number of a trial or attempt")
    return int(text)


def _without_parameters(request: Request) -> None:
    if request.scope["query_string"]:
        raise Refused(f"{request.method} {request.url.path} knows no parameters")


async def _read(request: Request, kind: type[Body]) -> Body:
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None
