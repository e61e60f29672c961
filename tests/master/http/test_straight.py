"""The short way of reports and reads answers as the application does, whatever comes."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Scope

from dethpc.client.in_process import http_scope
from dethpc.errors import StoreUnavailable
from dethpc.master.http.app import create_app
from dethpc.master.http.bodies import MOST_VALUES
from dethpc.master.http.routes import ROUTERS
from dethpc.master.http.routes.reads import Reads
from dethpc.master.http.straight import Straight
from dethpc.rundir.journal import read as read_journal
from dethpc.state import queries
from tests.master.conftest import T0, Served, experiment, trained, trial
from tests.master.http.test_trials import started
from tests.waiting import LONG_ENOUGH

REPORT = {"group": "training", "metrics": {"stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 0.5}}}}
METRICS, EVENTS = "/api/v1/trials/1/metrics", "/api/v1/runs/1.1.1/attempts/0/events"


def ask(
    app: ASGIApp, path: str, body: bytes, token: str = "", query: str = "", gone: bool = False, method: str = "POST"
) -> tuple[int, Any]:
    """Status and JSON of the answer; 0: there was none."""
    said: list[Message] = []
    headers = {"Content-Length": str(len(body)), **({"Authorization": f"Bearer {token}"} if token else {})}
    scope: Scope = http_scope(method, f"{path}?{query}", headers) | {"client": ("127.0.0.1", 1)}

    async def receive() -> Message:
        return {"type": "http.disconnect"} if gone else {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        said.append(message)

    asyncio.run(app(scope, receive, send))
    if not said:
        return 0, None
    text = b"".join(message.get("body", b"") for message in said[1:])
    lengths = [value for name, value in said[0]["headers"] if name == b"content-length"]
    assert lengths == [str(len(text)).encode()]
    return said[0]["status"], json.loads(text)


def both(served: Served) -> tuple[ASGIApp, ASGIApp]:
    """The whole application, and the same without its short way."""
    app = create_app(served.daemon.services)
    stack = app.middleware_stack
    assert isinstance(stack, Straight)
    stack._nouns.whole(lambda: None)
    long = create_app(served.daemon.services)
    long.middleware_stack = stack._otherwise
    long.state = app.state
    return app, cast(ASGIApp, long)


def code(answer: tuple[int, Any]) -> tuple[int, Any]:
    status, said = answer
    return status, said.get("error", {}).get("code") if isinstance(said, dict) else said


def test_it_answers_what_the_application_answers_and_refuses_in_the_same_words(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    short, long = both(served)
    good = json.dumps(REPORT).encode()
    same = [
        (METRICS, good, ""),
        (METRICS, good, "wrong"),
        (METRICS, good, f"v1.run:{'9.9.9'}:x"),
        ("/api/v1/trials/99/metrics", good, served.token),
        (METRICS, json.dumps({**REPORT, "group": "a.b"}).encode(), served.token),
        (METRICS, json.dumps({**REPORT, "metrics": {**REPORT["metrics"], "trialRunId": 7}}).encode(), served.token),
        (METRICS, b"[" + b"1," * MOST_VALUES + b"1]", served.token),
        (EVENTS, b"garbage", served.token),
        (EVENTS, b'{"lines": ["garbage"]}', served.token),
    ]
    for path, body, token in same:
        expected = ask(long, path, body, token)
        assert ask(short, path, body, token) == expected, (path, body[:80], expected)
    of_fastapi = [  # words of its own, and the same code
        (METRICS, b"{", "", 400),
        (METRICS, b'{"metrics": {"metrics": {"avgMetrics": 3}}}', "", 400),
        (METRICS, good, "limit=1", 400),
        (EVENTS, b"", "limit=1", 400),
        ("/api/v1/trials/" + "9" * 30 + "/metrics", good, "", 404),
    ]
    for path, body, query, status in of_fastapi:
        expected = ask(long, path, body, served.token, query)
        assert expected[0] == status
        assert code(ask(short, path, body, served.token, query)) == code(expected), (path, body[:80], expected)


def test_what_nobody_foresaw_is_an_answer_and_tells_the_log(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    short, _ = both(served)

    def fails(error: Exception) -> Callable[..., Any]:
        def ring(*_: Any) -> None:
            raise error

        return ring

    monkeypatch.setattr(served.daemon.services.doorbell, "take", fails(StoreUnavailable("the database is away")))
    assert code(ask(short, EVENTS, b'{"lines": ["x"]}', served.token)) == (503, 14)
    monkeypatch.setattr(served.daemon.services.doorbell, "take", fails(ZeroDivisionError("secret")))
    status, said = ask(short, EVENTS, b'{"lines": ["x"]}', served.token)
    assert status == 500 and said["error"]["error"] == "ZeroDivisionError; see the master's log"
    assert "ZeroDivisionError" in caplog.text


def test_a_run_that_nobody_can_look_up_is_told_that_the_database_is_away(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every job asks twice a minute while the server is away: a traceback for each would push everything else out of the log."""

    def away(*_: Any) -> None:
        raise StoreUnavailable("the database server does not answer: connection to db.example.org failed")

    monkeypatch.setattr(served.daemon.services.auth, "_find_run", away)
    for app in both(served):
        status, said = ask(app, EVENTS, b'{"lines": ["x"]}', "run:1.1.1:x")
        assert (status, said["error"]["error"]) == (503, "the database server does not answer")
    assert "Traceback" not in caplog.text


def test_who_hangs_up_before_the_end_of_the_body_has_no_answer_and_no_report(served: Served) -> None:
    short, _ = both(served)
    assert ask(short, EVENTS, b"", served.token, gone=True) == (0, None)


def test_a_report_is_answered_once_it_is_committed_and_in_the_journal(served: Served) -> None:
    new = {"config": "name: o\nsearcher: {name: custom, metric: loss}\n", "unmanaged": True}
    made = served.session.put("/api/v1/experiments/by-external-id/1", new)["experiment"]["id"]
    trial_id = served.session.post("/api/v1/trials", json={"experimentId": made, "unmanaged": True})["trial"]["id"]
    served.session.post(f"/api/v1/trials/{trial_id}/start", json={"trialId": trial_id})
    short, long = both(served)
    for steps, (app, group) in enumerate([(short, "training"), (long, "training"), (short, "validation")], 1):
        body = {"group": group, "metrics": {"stepsCompleted": steps, "metrics": {"avgMetrics": {"loss": 0.5}}}}
        answer = ask(app, f"/api/v1/trials/{trial_id}/metrics", json.dumps(body).encode(), served.token)
        assert answer == (200, {})
        with served.daemon.store.read() as connection:
            assert queries.trial(connection, trial_id).steps_completed == steps
            (run,) = queries.runs_of_trial(connection, trial_id)
        path = served.daemon.installation.home.run(run.id).attempt(0).journal
        assert [report.seq for report in read_journal(path)[0]] == list(range(1, steps + 1))


def test_a_run_rings_the_same_way_and_for_itself_alone(served: Served) -> None:
    config = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"
    served.session.post("/api/v1/experiments", json={"config": config})
    run_id = started(served)
    short, long = both(served)
    path = f"/api/v1/runs/{run_id}/attempts/0/events"
    assert ask(short, path, b"", served.token) == ask(long, path, b"", served.token)


def read(app: ASGIApp, path: str, token: str) -> tuple[int, Any]:
    path, _, query = path.partition("?")
    status, said = ask(app, path, b"", token, query, method="GET")
    return status, {name: said[name] for name in said if name not in CHANGING} if isinstance(said, dict) else said


CHANGING = frozenset({"uptime"})
THERE = {"experiment_id": 1, "trial_id": 1, "task_id": "1.1", "project_id": 1, "workspace_id": 1, "user_id": 1}


def test_what_is_only_read_is_the_same_on_both_ways(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: T0 + 1000)  # answers tell how long something has lasted
    served.put([experiment(1), *trained(trial(1))])
    short, long = both(served)
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    taken = 0
    for route in routes:
        scope = http_scope("GET", re.sub("{([^}]*)}", lambda found: str(THERE.get(found[1], "1")), route.path), {})
        if "GET" not in route.methods or Reads(ROUTERS).find(scope) is None:
            continue
        for query in (
            "",
            "?limit=1",
            "?limit=x",
            "?unknown=1",
            "?trialIds=1&maxDatapoints=5",
            "?sortBy=SORT_BY_NOTHING",
        ):
            for token in (served.token, "wrong"):
                expected = read(long, f"{scope['path']}{query}", token)
                assert read(short, f"{scope['path']}{query}", token) == expected, (scope["path"], query)
                taken += expected[0] == 200
    assert taken > 50
    for path in (
        "/api/v1/experiments?limit=1&limit=2",
        "/api/v1/experiments?userIds=1&userIds=2&states=RUNNING&states=STATE_COMPLETED&archived=false",
        "/api/v1/experiments?experimentIdFilter.incl=1",
        "/api/v1/experiments?archived=perhaps",
        "/api/v1/experiments/1/checkpoints?states=STATE_COMPLETED&sortByAttr=SORT_BY_SEARCHER_METRIC",
        f"/api/v1/experiments/{'9' * 30}",
        "/api/v1/experiments/one",
        "/api/v1/trials/99",
        "/api/v1/nothing",
    ):
        assert read(short, path, served.token) == read(long, path, served.token), path


def test_what_is_only_read_takes_the_short_way(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    short, _ = both(served)

    async def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(APIRoute, "handle", asked)
    assert read(short, "/api/v1/experiments?limit=1", served.token)[0] == 200
    assert read(short, "/api/v1/me", served.token)[0] == 200


def test_head_is_answered_as_get_is_without_a_body(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    connection = http.client.HTTPConnection(served.url.partition("//")[2], timeout=LONG_ENOUGH)

    def head_of(method: str, path: str, token: str) -> tuple[int, list[tuple[str, str]], bytes]:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()  # of an answer to HEAD, this reads none: what came would be taken for the next answer
        return answer.status, [field for field in answer.getheaders() if field[0] != "date"], body

    statuses = set()
    for token in (served.token, "wrong"):
        for path in (
            "/docs",
            "/openapi.json",
            "/api/v1/master",
            "/api/v1/experiments/1",
            "/api/v1/experiments/2",
            "/api/v1/trials/1/logs",
            METRICS,
        ):
            *looked, none = head_of("HEAD", path, token)
            *got, some = head_of("GET", path, token)
            assert looked == got and not none and (some or path.endswith("logs")), path
            statuses.add(looked[0])
    assert statuses >= {200, 401, 404}
    connection.close()
