"""Who gets in, and what an error looks like."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.routing import APIRoute

from dethpc.master.http.nouns import ROUTERS
from tests.master.conftest import Served, experiment, trained, trial
from tests.waiting import LONG_ENOUGH


def ask(served: Served, method: str, path: str, token: str = "", body: Any = None, **headers: str) -> tuple[int, Any]:
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LONG_ENOUGH)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if content.startswith((b"{", b"[")) else content


def test_a_task_session_shows_its_token_in_its_own_header(served: Served) -> None:
    header = {"Grpc-Metadata-x-allocation-token": f"Bearer {served.token}"}
    assert ask(served, "GET", "/api/v1/me", **header)[0] == 200


@pytest.mark.parametrize(
    "method, path, body, status, code",
    [
        ("GET", "/api/v1/experiments/99", None, 404, 5),
        ("GET", "/api/v1/trials/99", None, 404, 5),
        ("GET", "/api/v1/trials/99/logs", None, 404, 5),
        ("GET", "/api/v1/checkpoints/none", None, 404, 5),
        ("GET", "/api/v1/nothing/here", None, 404, 5),
        ("GET", "/api/v1/experiments/x", None, 400, 3),
        ("POST", "/api/v1/experiments/99/pause", None, 404, 5),
        ("POST", "/api/v1/experiments", "[]", 400, 3),
        ("POST", "/api/v1/workspaces/1/set-resource-quota", {}, 501, 12),
        ("POST", "/api/v1/preview-hp-search", {"config": {"searcher": {"name": "x"}}}, 400, 3),
        ("GET", "/api/v1/trials/1/logs?timestampAfter=yesterday", None, 400, 9),
        ("GET", "/api/v1/trials/1/logs?searchText=(&enableRegex=true", None, 400, 9),
        ("GET", "/api/v1/trials/1/logs?searchText=(%3F%3Da)b&enableRegex=true", None, 400, 9),
        ("GET", "/api/v1/experiments?sortBy=SORT_BY_NONSENSE", None, 400, 9),
    ],
)
def test_errors_have_determineds_form(
    served: Served, method: str, path: str, body: Any, status: int, code: int
) -> None:
    served.put([experiment(1), *trained(trial(1))])
    got, answer = ask(served, method, path, served.token, body)
    assert (got, answer["error"]["code"]) == (status, code), answer
    assert answer["error"]["error"] and answer["error"]["reason"]


def test_an_id_that_no_row_can_have_is_not_found_whatever_the_route(served: Served) -> None:
    """Each would else be answered in the database's words."""
    served.put([experiment(1), *trained(trial(1))])
    large, asked = "9" * 30, 0
    for route in (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)):
        if "GET" in route.methods and (name := re.search(r"\{(\w+_id)\}", route.path)):
            value = f"1.1.1.{large}" if name[1] == "allocation_id" else large
            status, answer = ask(served, "GET", re.sub(r"\{\w+\}", value, route.path), served.token)
            assert status == 404 and "not found" in answer["error"]["error"], (route.path, answer)
            asked += 1
    assert asked > 20
    status, answer = ask(served, "GET", f"/api/v1/trials/time-series?trialIds={large}", served.token)
    assert status == 400 and "whole numbers up to" in answer["error"]["error"] and "SQL" not in str(answer)


def test_a_wrong_config_lists_its_problems(served: Served) -> None:
    status, answer = ask(
        served, "POST", "/api/v1/experiments", served.token, {"config": "nam: x\nsearcher: {name: y}\n"}
    )
    assert status == 400
    assert {"field", "message", "found", "allowed", "line", "hint", "file"} <= set(answer["error"]["problems"][0])


def test_a_body_without_end_is_not_read(served: Served) -> None:
    status, answer = ask(served, "POST", "/api/v1/auth/login", **{"Content-Length": str(1 << 40)})
    assert status == 413 and "too large" in answer["error"]["error"]


def test_the_api_documents_itself_without_the_internet(served: Served) -> None:
    page = ask(served, "GET", "/docs")[1].decode()
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(loaded) == 3
    for path in loaded:
        assert path.startswith("/docs/"), "nothing comes from another server"
        assert ask(served, "GET", path)[0] == 200
    assert "/api/v1/experiments/{experiment_id}" in ask(served, "GET", "/openapi.json")[1]["paths"]


@pytest.mark.parametrize("size", [41 << 20, 3_000_003], ids=["bytes", "values"])
def test_a_body_is_refused_by_its_size_and_its_values_before_it_is_parsed(served: Served, size: int) -> None:
    """A mebibyte of empty lists takes twenty in memory."""
    text = '{"lines": ["' + "x" * size + '"]}' if size > 1 << 24 else '{"lines": [' + "[]," * (size // 3) + "[]]}"
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LONG_ENOUGH)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer comes before all is sent
        connection.request(
            "POST", "/api/v1/runs/1.1.1/attempts/0/events", text, {"Authorization": f"Bearer {served.token}"}
        )
    answer = connection.getresponse()
    assert answer.status == 413 and "too large" in json.loads(answer.read())["error"]["error"]
    connection.close()
