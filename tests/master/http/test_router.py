"""How few threads and routes a request meets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from dethpc.master.http.routes.access import Reading
from dethpc.master.http.routes.router import Router


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
    router, met = Router(), list[str]()
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


def test_no_route_of_a_router_is_asked_about_a_path_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    matches = APIRoute.matches

    def noted(route: APIRoute, scope: Any) -> Any:
        asked.append(route.path)
        return matches(route, scope)

    monkeypatch.setattr(APIRoute, "matches", noted)
    app = FastAPI()
    for name in ("a", "b", "c"):
        router = Router(prefix=f"/{name}")
        for more in ("", "/{number}", "/{number}/x"):
            router.add_api_route(more or "/", lambda: Answer(number=1))
        app.include_router(router)
    assert status(app, "/c/7/x") == 200
    assert asked and all(path.startswith("/c") for path in asked)
    asked.clear()
    assert status(app, "/d") == 404 and asked == []
