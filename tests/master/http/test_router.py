"""The one seam to FastAPI: where a route's function runs, and what is open there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from dethpc.master.http.access import Reading
from dethpc.master.http.router import Route, new_router


class Answer(BaseModel):
    number: int


def status(app: FastAPI, path: str) -> int:
    """Of a GET in this process."""
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "root_path": ""}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


def test_a_route_opens_its_connection_where_its_function_runs() -> None:
    router, met = new_router(), list[str]()
    here = ContextVar("here", default="in another turn of a thread, which sees nothing of this one")

    @contextmanager
    def read() -> Iterator[str]:
        here.set("open")
        yield "the connection"
        met.append("closed")

    @router.get("/things/{number}")
    def thing(number: int, connection: Reading) -> Answer:
        met.extend([here.get(), str(connection)])
        return Answer(number=number)

    app = FastAPI()
    app.state.services = SimpleNamespace(store=SimpleNamespace(read=read))
    app.include_router(router)
    assert status(app, "/things/3") == 200
    assert met == ["open", "the connection", "closed"]


def test_fastapi_looks_at_a_function_when_that_is_first_needed_and_once_however_many_need_it(
    request: pytest.FixtureRequest,
) -> None:
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    router, together = new_router(), Barrier(8)

    @router.get("/things/{number}")
    def thing(number: int) -> Answer:
        return Answer(number=number)

    (route,) = router.routes
    assert isinstance(route, Route)
    assert "dependant" not in vars(route)

    def need(_: int) -> tuple[int, str]:
        together.wait(10)
        return id(route.app), route.dependant.path_params[0].name

    with ThreadPoolExecutor(8) as threads:
        ((_, name),) = set(threads.map(need, range(8)))
    assert name == "number"
