"""A parameter that a route does not know is refused: to ignore a filter is to act on what nobody asked for."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from dethpc.errors import Refused


def only_known_parameters(request: Request) -> None:
    """Raises: Refused."""
    if not request.query_params:
        return
    route: APIRoute = request.scope["route"]
    known = set(_names(route.dependant))
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        raise Refused(
            f"{request.method} {request.url.path} does not know the parameter {', '.join(unknown)[:200]!r}; allowed: {allowed}"
        )


def _names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _names(inner)
