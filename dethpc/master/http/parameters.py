"""A parameter that a route does not know is refused: to ignore a filter is to act on what nobody asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from dethpc.errors import Refused


async def only_known_parameters(request: Request) -> None:
    """Raises: Refused."""
    if not request.query_params:
        return
    route: APIRoute = request.scope["route"]
    known = _known(route)
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        raise Refused(
            f"{request.method} {request.url.path} does not know the parameter {', '.join(unknown)[:200]!r}; allowed: {allowed}"
        )


def _known(route: APIRoute) -> frozenset[str]:
    """Collected once: a route never changes."""
    key = (route.endpoint, route.path_format)
    if key not in _KNOWN:
        _KNOWN[key] = frozenset(_names(route.dependant))
    return _KNOWN[key]


_KNOWN: dict[tuple[Callable[..., Any], str], frozenset[str]] = {}


def _names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _names(inner)
