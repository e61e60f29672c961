"""Parameters before a route is asked: an id that no row can have is not found, and one that the route does not know is refused, for
to ignore a filter is to act on what nobody asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from dethpc.errors import NotFound, Refused


async def ids_that_can_be(request: Request) -> None:
    """Nothing has a number that no row can hold. Raises NotFound, before a database is asked."""
    if (name := number_of_nothing(request.path_params)) is not None:
        value = request.path_params[name]
        raise NotFound(f"{name.removesuffix('_id').replace('_', ' ')} {value[:40]} not found")


def number_of_nothing(parameters: Mapping[str, str]) -> str | None:
    """Which parameter of a path is an id that no row can have."""
    for name, value in parameters.items():
        if name.endswith("_id") and any(part.isdecimal() and len(part) > 18 for part in value.strip("-").split(".")):
            return name
    return None


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
