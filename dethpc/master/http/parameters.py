"""Checks of parameters before a route runs: an id that no row can have is not found; an unknown query parameter is refused.

An ignored filter would make a request act on the wrong objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel

from dethpc.errors import NotFound, Refused


async def ids_that_can_be(request: Request) -> None:
    """Nothing has a number that no row can hold. Raises NotFound, before a database is asked."""
    for name, value in request.path_params.items():
        if name.endswith("_id") and any(part.isdecimal() and len(part) > 18 for part in value.strip("-").split(".")):
            raise NotFound(f"{name.removesuffix('_id').replace('_', ' ')} {value[:40]} not found")


def respell(scope: MutableMapping[str, Any], route: APIRoute) -> None:
    """Parameters of a request may be written as in ``sort_by``, which Determined's gateway reads, too: they get the names that the
    route has for them."""
    query: bytes = scope.get("query_string", b"")
    if b"_" not in query:
        return
    parameters = _known(route)
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    scope["query_string"] = urlencode([(_spelling(name, parameters), value) for name, value in pairs]).encode()


def _spelling(name: str, parameters: frozenset[str]) -> str:
    camel = ".".join(to_camel(part) for part in name.split("."))
    return camel if name not in parameters and camel in parameters else name


async def only_known_parameters(request: Request) -> None:
    """Raises: Refused."""
    if not request.query_params:
        return
    route: APIRoute = request.scope["route"]
    parameters = _known(route)
    unknown = [name for name in request.query_params if name not in parameters]
    if unknown:
        there = f"it has {', '.join(sorted(parameters))}" if parameters else "it has none"
        raise Refused(
            f"{request.method} {request.url.path} does not know the parameter {', '.join(unknown)[:200]!r}; {there}"
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
