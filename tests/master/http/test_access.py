"""Who gets in, and what an error looks like."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from dethpc.master.http.auth import mint_run_token
from dethpc.master.http.middleware import PUBLIC
from tests.master.conftest import Served, experiment, run_of, trained, trial, uuid_of
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


def test_every_route_but_the_public_ones_asks_for_a_token(served: Served) -> None:
    paths = ask(served, "GET", "/openapi.json")[1]["paths"]
    assert len(paths) > 60
    for path, methods in paths.items():
        for method in methods:
            status, body = ask(served, method.upper(), path.replace("{", "").replace("}", ""))
            if path in PUBLIC:
                assert status != 401, path
            else:
                assert status == 401 and body["error"]["reason"] == "Unauthenticated", path


def test_a_runs_token_is_good_for_that_run_alone(served: Served) -> None:
    mine, other = run_of(trial(1)), run_of(trial(2, 2))
    served.put([experiment(1), experiment(2), *trained(trial(1)), *trained(trial(2, 2))])
    token, _ = mint_run_token(mine.id)
    served.as_run(mine, token)

    def status(method: str, path: str, body: Any = None) -> int:
        return ask(served, method, path, token, body)[0]

    for path in (
        "/api/v1/experiments/1",
        "/api/v1/experiments/1/trials",
        "/api/v1/experiments/1/searcher/best_searcher_validation_metric",
        "/api/v1/trials/1",
        "/api/v1/trials/1/logs",
        f"/api/v1/checkpoints/{uuid_of(1, 2)}",
        f"/api/v1/allocations/{mine.id}.0/signals/preemption?timeoutSeconds=0",
    ):
        assert status("GET", path) == 200, path
    for path in (
        "/api/v1/experiments/2",
        "/api/v1/experiments/2/checkpoints",
        "/api/v1/experiments/2/model_def",
        "/api/v1/trials/2",
        "/api/v1/trials/2/logs",
        "/api/v1/trials/metrics/trial_metrics?trialIds=2",
        "/api/v1/tasks/2.2/logs",
        f"/api/v1/checkpoints/{uuid_of(2, 2)}",
        f"/api/v1/allocations/{other.id}.0/signals/preemption?timeoutSeconds=0",
        "/api/v1/experiments",
        "/api/v1/me",
        "/api/v1/master/config",
        "/api/v1/master/logs",
        "/api/v1/agents",
        "/api/v1/tasks",
    ):
        assert status("GET", path) == 403, path
    assert status("POST", f"/api/v1/runs/{other.id}/attempts/0/events", {"lines": []}) == 403
    assert status("POST", "/api/v1/experiments/1/kill") == 403
    assert status("POST", "/api/v1/trials/1/kill") == 403
    assert status("POST", "/api/v1/experiments", {"config": "name: x"}) == 403
    assert status("POST", f"/api/v1/allocations/{mine.id}.0/signals/ack_preemption") == 200


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
        ("POST", "/api/v1/experiments/continue", {}, 501, 12),
        ("POST", "/api/v1/preview-hp-search", {"config": {"searcher": {"name": "x"}}}, 400, 3),
        ("GET", "/api/v1/trials/1/logs?timestampAfter=yesterday", None, 400, 9),
        ("GET", "/api/v1/trials/1/logs?searchText=(&enableRegex=true", None, 400, 9),
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


def test_a_wrong_config_lists_its_problems(served: Served) -> None:
    status, answer = ask(
        served, "POST", "/api/v1/experiments", served.token, {"config": "nam: x\nsearcher: {name: y}\n"}
    )
    assert status == 400
    assert {"field", "found", "allowed", "line", "hint", "file"} <= set(answer["error"]["problems"][0])


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
