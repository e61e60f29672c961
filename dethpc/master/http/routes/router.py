"""Routers whose answers are made in the thread that found what they say, and that say at once which paths are not theirs.

FastAPI alone would check each answer against its model once more, and write it as JSON in the event loop: everybody else waits
for as long as that takes, and a page of a hundred experiments takes as long as ten small requests. It would also open and give
back a route's connection to the database in two threads more, and ask each route of each router whether a path is its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_args, get_origin, get_type_hints

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError
from starlette.routing import Match
from starlette.types import Scope

from dethpc.master.http.routes.access import Reading, TheStore
from dethpc.master.http.routes.gated import Gated
from dethpc.master.http.wire.splicing import Spliced

Endpoint = Callable[..., Any]


class Router(Gated):
    """Functions that are not ``async`` run in threads, and their models become JSON there."""

    _beginnings: tuple[str, ...] | None = None  # of the paths that are ours

    def add_api_route(self, path: str, endpoint: Endpoint, **options: Any) -> None:
        self._beginnings = None
        returned = get_type_hints(endpoint, include_extras=True).get("return")
        if get_origin(returned) is Spliced:
            (options["response_model"],) = get_args(returned)
        super().add_api_route(path, endpoint if inspect.iscoroutinefunction(endpoint) else written(endpoint), **options)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if self._beginnings is None:
            ours = {route.path.partition("{")[0] for route in self.routes if isinstance(route, APIRoute)}
            self._beginnings = tuple(ours)
        if not scope.get("root_path") and not scope["path"].startswith(self._beginnings):
            return Match.NONE, {}
        return super().matches(scope)


def written(endpoint: Endpoint) -> Endpoint:
    """The function, with its model already written, and its ``Reading`` opened in its own thread. What sets a status of its own, or
    returns no model, is left to FastAPI."""
    if any(annotation in (Response, "Response") for annotation in endpoint.__annotations__.values()):
        return endpoint
    declared: list[Any] = []
    signature = inspect.signature(endpoint)
    reading = [name for name, one in signature.parameters.items() if one.annotation in (Reading, "Reading")]

    def found_by(named: dict[str, Any]) -> Any:
        if not reading:
            return endpoint(**named)
        with named[reading[0]].read() as connection:
            return endpoint(**{**named, reading[0]: connection})

    @wraps(endpoint)
    def answer(**named: Any) -> Any:
        found = found_by(named)
        if isinstance(found, Spliced):
            return Response(found.text, media_type="application/json")
        if not isinstance(found, BaseModel):
            return found
        if not declared:
            declared.append(get_type_hints(endpoint).get("return"))
        if type(found) is not declared[0]:
            return found
        try:
            return Response(found.model_dump_json(by_alias=True), media_type="application/json")
        except (PydanticSerializationError, UnicodeError):  # the application knows what to say then
            return found

    parameters = [
        one.replace(annotation=TheStore) if name in reading else one for name, one in signature.parameters.items()
    ]
    answer.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return answer
