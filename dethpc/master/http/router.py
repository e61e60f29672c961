"""The factory of the API's routers, and the routes that check their parameters and serialize their responses in their own thread.

FastAPI alone would validate each response against its model again and write its JSON in the event loop, which delays all other
requests: a page of a hundred experiments takes as long as ten small requests. It would also open and close a route's database
connection in two more threads.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, MutableMapping
from functools import cached_property, wraps
from threading import RLock
from typing import Any, get_type_hints
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError
from starlette.routing import compile_path, get_name
from starlette.types import Receive, Scope, Send

from dethpc.errors import NotFound, Refused
from dethpc.master.http.access import Reading, TheStore
from dethpc.master.http.middleware import as_json

# FastAPI gives a body's model a name in a way that pydantic warns of, and hides that while it makes a field itself, no later.
warnings.filterwarnings("ignore", "The 'alias' attribute", UserWarning)

Endpoint = Callable[..., Any]

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": description}
    for status, description in {
        400: "The request is malformed, out of range, or not possible in the present state.",
        401: "No valid token.",
        403: "The token is valid, and not for this.",
        404: "There is no such thing.",
        409: "It meets another change.",
        413: "The body is too large.",
        429: "Too many at a time; try again later.",
        501: "Not supported.",
        503: "The scheduler, the database or the file system gives no answer.",
    }.items()
}
"""Answers that any route may give. Their bodies have one form: ``{"error": {"code", "reason", "error"}}``."""


async def ids_that_can_be(request: Request) -> None:
    """Nothing has a number that no row can hold. Raises NotFound, before a database is asked."""
    for name, value in request.path_params.items():
        if name.endswith("_id") and any(part.isdecimal() and len(part) > 18 for part in value.strip("-").split(".")):
            raise NotFound(f"{name.removesuffix('_id').replace('_', ' ')} {value[:40]} not found")


def respell(scope: MutableMapping[str, Any], route: Route) -> None:
    """Parameters of a request may be written as in ``sort_by``, which Determined's gateway reads, too: they get the names that the
    route has for them."""
    query: bytes = scope.get("query_string", b"")
    if b"_" not in query:
        return
    parameters = route.parameters
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    scope["query_string"] = urlencode([(_spelling(name, parameters), value) for name, value in pairs]).encode()


def _spelling(name: str, parameters: frozenset[str]) -> str:
    camel = ".".join(to_camel(part) for part in name.split("."))
    return camel if name not in parameters and camel in parameters else name


async def only_known_parameters(request: Request) -> None:
    """An ignored filter would make a request act on the wrong objects. Raises: Refused."""
    if not request.query_params:
        return
    parameters = request.scope["route"].parameters
    unknown = [name for name in request.query_params if name not in parameters]
    if unknown:
        there = f"it has {', '.join(sorted(parameters))}" if parameters else "it has none"
        raise Refused(
            f"{request.method} {request.url.path} does not know the parameter {', '.join(unknown)[:200]!r}; {there}"
        )


def _names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _names(inner)


# The middleware checks the token: HTTPBearer puts it into /docs.
GATE = (Depends(HTTPBearer(auto_error=False)), Depends(ids_that_can_be), Depends(only_known_parameters))


def _operation(route: APIRoute) -> str:
    return f"{route.tags[0] if route.tags else 'master'}_{route.name}"


class Route(APIRoute):
    """A function that is not ``async`` runs in a thread. There, its ``Reading`` is opened and its model becomes JSON.

    FastAPI looks at a function, its parameters and its models, when a request first comes for it, or for /docs. Of three hundred
    routes a master of one user serves some twenty: looking at all of them when it starts takes a third of that time.
    """

    def __init__(
        self, path: str, endpoint: Endpoint, *, methods: Collection[str], name: str | None = None, **options: Any
    ):
        self.path, self.methods = path, {method.upper() for method in methods}
        self.endpoint = endpoint if inspect.iscoroutinefunction(endpoint) else written(endpoint)
        self.name = name or get_name(endpoint)
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._options = options

    def __getattr__(self, attribute: str) -> Any:
        """Called for what is not there before FastAPI has looked at the function."""
        with _LEARNING:
            if (options := self.__dict__.pop("_options", None)) is not None:
                try:
                    super().__init__(self.path, self.endpoint, methods=self.methods, name=self.name, **options)
                except BaseException:  # such as want of memory: the next request looks again
                    self._options = options
                    raise
        return self.__getattribute__(attribute)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """What a query may name."""
        return frozenset(_names(self.dependant))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        respell(scope, self)
        if self.body_field is not None:
            receive = as_json(scope, receive)
        await super().handle(scope, receive, send)


_LEARNING = RLock()
"""/docs looks at the routes in a thread, while requests come."""


def new_router(**options: Any) -> APIRouter:
    """A router with ``options``, before each of whose routes stands what no route has to ask itself."""
    return APIRouter(
        dependencies=GATE, responses=_REFUSALS, generate_unique_id_function=_operation, route_class=Route, **options
    )


def written(endpoint: Endpoint) -> Endpoint:
    """The function, with its model already written, and its ``Reading`` opened in its own thread. What sets a status of its own, or
    returns no model, is left to FastAPI."""
    if any(annotation in (Response, "Response") for annotation in endpoint.__annotations__.values()):
        return endpoint
    declared: list[Any] = []
    signature = inspect.signature(endpoint)
    reading = [name for name, one in signature.parameters.items() if one.annotation in (Reading, "Reading")]

    def call(named: dict[str, Any]) -> Any:
        if not reading:
            return endpoint(**named)
        with named[reading[0]].read() as connection:
            return endpoint(**{**named, reading[0]: connection})

    @wraps(endpoint)
    def answer(**named: Any) -> Any:
        reply = call(named)
        if not isinstance(reply, BaseModel):
            return reply
        if not declared:
            declared.append(get_type_hints(endpoint).get("return"))
        if type(reply) is not declared[0]:
            return reply
        try:
            return Response(reply.model_dump_json(by_alias=True), media_type="application/json")
        except (PydanticSerializationError, UnicodeError):  # the application knows what to say then
            return reply

    parameters = [
        one.replace(annotation=TheStore) if name in reading else one for name, one in signature.parameters.items()
    ]
    answer.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return answer
