"""The short way of what is only read: see ``straight``. A route that ``Router`` has written is found, given its parameters, and
called in a thread, without what FastAPI does besides for any route, which takes longer than most routes do themselves.

Whatever else there is to say, of a parameter that is wrong or a path that nobody serves, is said on the long way: to be asked once
more does no harm to what is only read.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Protocol, get_origin, get_type_hints

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from dethpc.master.http.auth import Principal
from dethpc.master.http.parameters import number_of_nothing
from dethpc.master.http.routes.direct import Act
from dethpc.master.http.routes.gated import GATE
from dethpc.master.http.turns import Turns

_ASKED_ALREADY = frozenset(each.dependency for each in GATE)
"""``straight`` and ``Plan`` do themselves what these do before a route."""


class LongWay(Exception):
    """The request has to take it."""


class Plan:
    """How a route's function, or one that it depends on, is given what it is called with."""

    def __init__(self, of: Dependant) -> None:
        assert of.call is not None
        self.call, self._waits = of.call, inspect.iscoroutinefunction(of.call)
        self._needs = [(need.name, Plan(need)) for need in of.dependencies if need.call not in _ASKED_ALREADY]
        self._path, self._request = of.path_params, of.request_param_name
        self._query = {field.alias: field for field in of.query_params}
        self.known: frozenset[str] = frozenset(self._query).union(*(need.known for _, need in self._needs))
        self._unasked, self._required = request_params_to_args(of.query_params, {})

    async def values(self, request: Request) -> dict[str, Any]:
        """Raises LongWay, and what it depends on."""
        found: dict[str, Any] = {}
        for name, need in self._needs:
            values = await need.values(request)
            found[str(name)] = await need.call(**values) if need._waits else need.call(**values)
        if self._request:
            found[self._request] = request
        if self._path:
            found |= _taken(self._path, request.path_params)
        if not self._query:
            return found
        asked = request.query_params if request.scope["query_string"] else {}
        names = self._query if self._required else [name for name in asked if name in self._query]
        given = [self._query[name] for name in names]
        return {**found, **self._unasked, **_taken(given, asked)}

    async def answer(self, request: Request) -> bytes:
        """JSON. Raises LongWay, and what the route does."""
        if request.scope["query_string"] and not self.known.issuperset(request.query_params):
            raise LongWay
        read = partial(self._read, await self.values(request))
        state, scope = request.state, request.scope
        who: Principal | None = getattr(state, "principal", None)
        if who is not None and not who.is_owner:  # a trial, which trains on when it is answered
            return await run_in_threadpool(read)
        same = state.token, scope["path"], scope["query_string"], request.headers.get("accept")
        turns: Turns = request.app.state.turns
        return await turns.look(same, read)

    def _read(self, values: dict[str, Any]) -> bytes:
        found = self.call(**values)
        if type(found) is not Response:
            raise LongWay
        return bytes(found.body)


class Routed(Protocol):
    """A router, as far as it concerns ``Reads``."""

    @property
    def routes(self) -> Sequence[Any]: ...


class Reads:
    """All GET routes of ``routers``, in their order: of two that a path fits the first one counts."""

    def __init__(self, routers: Iterable[Routed]) -> None:
        self._of: dict[tuple[int, str], list[_Read]] = {}
        for route in (route for router in routers for route in router.routes):
            if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
                self._of.setdefault(_shape(route.path), []).append(_Read(route))

    def find(self, scope: Scope) -> tuple[Act, dict[str, Any]] | None:
        """What answers a request, and its path's parameters. None: it takes the long way."""
        if scope["method"] != "GET" or scope.get("root_path"):
            return None
        for read in self._of.get(_shape(scope["path"]), ()):
            if (found := read.route.path_regex.match(scope["path"])) is not None:
                parameters = found.groupdict()
                return None if read.plan is None or number_of_nothing(parameters) else (read.plan.answer, parameters)
        return None


class _Read:
    """A GET route. Its plan is made when it is first asked for: to make all of them would hold up the start."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route

    @cached_property
    def plan(self) -> Plan | None:
        return _plan(self.route)


def _shape(path: str) -> tuple[int, str]:
    """What a path has in common with those of its routes: how many parts, and the noun, which is no parameter."""
    return path.count("/"), path.split("/", 4)[3] if path.startswith("/api/v1/") else ""


def _plan(route: APIRoute) -> Plan | None:
    """None for one that needs more of FastAPI."""
    from dethpc.master.http.wire.splicing import Spliced  # with the wire's models, which come when somebody first asks

    function = inspect.unwrap(route.endpoint)
    written = function is not route.endpoint
    returned = get_type_hints(function).get("return")
    model = inspect.isclass(returned) and issubclass(returned, BaseModel)
    if not written or not (model or get_origin(returned) is Spliced):
        return None
    needs_more = any(getattr(each, more) for each in _all(route.dependant) for more in _MORE) or any(
        inspect.isgeneratorfunction(each.call) for each in _all(route.dependant)
    )
    return None if needs_more else Plan(route.dependant)


_MORE = ("body_params", "header_params", "cookie_params", "response_param_name", "background_tasks_param_name")


def _all(of: Dependant) -> Iterator[Dependant]:
    yield of
    for need in of.dependencies:
        yield from _all(need)


def _taken(fields: Any, given: Any) -> dict[str, Any]:
    values, wrong = request_params_to_args(fields, given)
    if wrong:
        raise LongWay
    return values
