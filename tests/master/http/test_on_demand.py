"""Routes that are made when somebody asks for them, and that nobody can tell from others."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from dethpc.master.http.app import create_app
from dethpc.master.http.routes import ROUTERS
from dethpc.master.http.routes.on_demand import LazyRouter, Nouns, noun_of
from tests.master.conftest import T0, Served
from tests.master.http.test_roles import routes_of
from tests.master.http.test_straight import ask


@pytest.mark.parametrize(
    ("path", "noun"),
    [("/", ""), ("/info", "info"), ("/api/v1/trials/7/x", "trials"), ("/api/v1/me", "me"), ("/api/v1", ""), ("", "")],
)
def test_a_noun_is_the_part_of_a_path_that_no_parameter_stands_for(path: str, noun: str) -> None:
    assert noun_of(path) == noun


def test_a_router_names_the_nouns_of_all_its_paths() -> None:
    for each in ROUTERS:
        assert {noun_of(route.path) for route in each.routes} == each.nouns, each.routes[0].path


def test_a_master_imports_no_route_before_it_is_asked() -> None:
    words = "import sys, dethpc.master.serve; print(*(name for name in sys.modules if '.http.wire' in name))"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout == "\n"


def test_the_routes_of_a_noun_come_with_the_first_request_that_may_have_them(served: Served) -> None:
    app = create_app(served.daemon.services)
    before = set(routes_of(app))
    assert ask(app, "/api/v1/templates", b"", "wrong", method="GET")[0] == 401
    assert set(routes_of(app)) == before, "a stranger brings nothing"
    first = ask(app, "/api/v1/templates", b"", served.token, method="GET")
    assert first[0] == 200 and ask(app, "/api/v1/templates", b"", served.token, method="GET") == first
    came = set(routes_of(app)) - before
    assert came and all(route.partition(" ")[2].startswith("/api/v1/templates") for route in came)


def test_what_is_asked_first_changes_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what answers, nor what is said of a method that is not served, nor what /docs describes."""
    monkeypatch.setattr(time, "time", lambda: T0)  # answers tell how long something has lasted
    at_once = create_app(served.daemon.services)
    at_once.openapi()
    in_turns = create_app(served.daemon.services)
    for path in ("/api/v1/webhooks/custom", "/api/v1/projects/1", "/api/v1/waiting", "/api/v1/agents"):
        ask(in_turns, path, b"", served.token, method="GET")
    for path in (
        "/api/v1/experiments",
        "/api/v1/trials",
        "/api/v1/resource-pools/goodput",
        "/api/v1/nothing",
        "/nothing",
    ):
        for method in ("GET", "PUT", "DELETE"):
            expected = ask(at_once, path, b"", served.token, method=method)
            assert ask(in_turns, path, b"", served.token, method=method) == expected, (method, path)
    assert list(in_turns.openapi()["paths"]) == list(at_once.openapi()["paths"])
    assert list(routes_of(in_turns)) == list(routes_of(at_once))


def test_many_who_ask_at_once_find_each_route_once_and_the_warnings_as_they_were() -> None:
    app = FastAPI()
    nouns = Nouns(app, ROUTERS)
    paths = [route.path for each in ROUTERS for route in each.routes if isinstance(route, APIRoute)]
    filters, together = list(warnings.filters), threading.Barrier(8)

    def bring(thread: int) -> None:
        together.wait()
        for path in [*paths[thread::8], *paths]:
            nouns.bring(path).result()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(bring, range(8)))
    assert warnings.filters == filters
    assert not any(map(nouns.lacks, paths))
    found = Counter(routes_of(app))
    assert found.keys() > {f"GET {path}" for path in ("/api/v1/me", "/info")} and set(found.values()) == {1}


def test_a_router_that_could_not_be_imported_is_imported_when_it_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, failures, imported = FastAPI(), [OSError("the disk is away")], importlib.import_module

    def failing(name: str) -> ModuleType:
        if failures:
            raise failures.pop()
        return imported(name)

    monkeypatch.setattr(importlib, "import_module", failing)
    nouns = Nouns(app, [LazyRouter("templates.router", "templates")])
    with pytest.raises(OSError, match="away"):
        nouns.bring("/api/v1/templates").result()
    assert nouns.lacks("/api/v1/templates")
    nouns.bring("/api/v1/templates").result()
    assert not nouns.lacks("/api/v1/templates") and "GET /api/v1/templates" in routes_of(app)
