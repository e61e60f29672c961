"""Requests as the application answers them, and reports on their way into the journal and the database."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Scope

from dethpc.client.in_process import http_scope
from dethpc.domain.reports import Report
from dethpc.errors import StoreUnavailable
from dethpc.master.http.app import create_app
from dethpc.master.http.middleware import MOST_VALUES
from dethpc.master.http.nouns import runs
from dethpc.rundir import files, lines, logline
from dethpc.rundir.journal import read as read_journal
from dethpc.rundir.journal import to_line
from dethpc.state import queries
from tests.master.conftest import Served, experiment, trained, trial
from tests.master.http.test_trials import started
from tests.waiting import LONG_ENOUGH

YAML = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"
REPORT = {"group": "training", "metrics": {"stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 0.5}}}}
METRICS, EVENTS = "/api/v1/trials/1/metrics", "/api/v1/runs/1.1.1/attempts/0/events"


def ask(
    app: ASGIApp, path: str, body: bytes, token: str = "", query: str = "", gone: bool = False, method: str = "POST"
) -> tuple[int, Any]:
    """Status and JSON of the answer; 0 where the client is ``gone``."""
    messages: list[Message] = []
    headers = {"Content-Length": str(len(body)), **({"Authorization": f"Bearer {token}"} if token else {})}
    scope: Scope = http_scope(method, f"{path}?{query}", headers) | {"client": ("127.0.0.1", 1)}

    async def receive() -> Message:
        return {"type": "http.disconnect"} if gone else {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    asyncio.run(app(scope, receive, send))
    if gone:
        return 0, None
    text = b"".join(message.get("body", b"") for message in messages[1:])
    lengths = [value for name, value in messages[0]["headers"] if name == b"content-length"]
    assert lengths == [str(len(text)).encode()]
    return messages[0]["status"], json.loads(text)


def code(answer: tuple[int, Any]) -> tuple[int, Any]:
    status, reply = answer
    return status, reply.get("error", {}).get("code") if isinstance(reply, dict) else reply


class Sender:
    """One request; counts what the application has read of its body. ``gone``: the sender has hung up."""

    def __init__(self, app: ASGIApp, path: str, body: bytes, token: str, read: list[int]) -> None:
        self._app, self._body, self._read = app, body, read
        self.messages: list[Message] = []
        self.gone = False
        headers = {
            "Content-Length": str(len(body)),
            "Content-Type": "text/plain",
            "Authorization": f"Bearer {token}",
        }
        self.scope: Scope = http_scope("POST", path, headers) | {"client": ("127.0.0.1", 1)}

    async def ask(self) -> None:
        await self._app(self.scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self.gone:
            return {"type": "http.disconnect"}
        self._read.append(len(self._body))
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def answer(self) -> Any:
        return json.loads(b"".join(message.get("body", b"") for message in self.messages[1:]))


def line(seq: int, size: int) -> str:
    data = {"group": "training", "steps_completed": seq, "metrics": {"loss": 1 / seq, "words": "x" * size}}
    return to_line(Report(seq, 1.0, "metrics", data))


async def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_ENOUGH
    while not met():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


def test_a_report_that_cannot_be_is_refused_with_its_reason(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    app, good = create_app(served.daemon.services), json.dumps(REPORT).encode()
    for path, body, token, status in [
        (METRICS, good, "wrong", 401),
        (METRICS, good, "v1.run:9.9.9:x", 401),
        ("/api/v1/trials/99/metrics", good, served.token, 404),
        ("/api/v1/trials/" + "9" * 30 + "/metrics", good, served.token, 404),
        (METRICS, json.dumps({**REPORT, "group": "a.b"}).encode(), served.token, 400),
        (METRICS, b"{", served.token, 400),
        (METRICS, b'{"metrics": {"metrics": {"avgMetrics": 3}}}', served.token, 400),
        (METRICS, b"[" + b"1," * MOST_VALUES + b"1]", served.token, 413),
        (EVENTS, b"garbage", served.token, 400),
        (EVENTS, b'{"lines": ["garbage"]}', served.token, 200),  # of a run that nobody knows
    ]:
        assert ask(app, path, body, token)[0] == status, (path, body[:80], ask(app, path, body, token))
    for path in (METRICS, EVENTS):
        status, reply = ask(app, path, good, served.token, "limit=1")
        assert status == 400 and "does not know the parameter 'limit'" in reply["error"]["error"]


def test_what_fails_at_a_ring_is_an_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(served.daemon.services)

    def fails(error: Exception) -> Callable[..., Any]:
        def ring(*_: Any) -> None:
            raise error

        return ring

    monkeypatch.setattr(served.daemon.services.doorbell, "take", fails(StoreUnavailable("the database is away")))
    assert code(ask(app, EVENTS, b'{"lines": ["x"]}', served.token)) == (503, 14)
    monkeypatch.setattr(served.daemon.services.doorbell, "take", fails(ZeroDivisionError("secret")))
    with pytest.raises(ZeroDivisionError):  # for the server's log: it was answered
        ask(app, EVENTS, b'{"lines": ["x"]}', served.token)


def test_a_run_that_nobody_can_look_up_is_told_that_the_database_is_away(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every job asks twice a minute while the server is away: a traceback for each would push everything else out of the log."""

    def away(*_: Any) -> None:
        raise StoreUnavailable("the database server does not answer: connection to db.example.org failed")

    monkeypatch.setattr(served.daemon.services.auth, "_find_run", away)
    app = create_app(served.daemon.services)
    status, reply = ask(app, EVENTS, b'{"lines": ["x"]}', "run:1.1.1:x")
    assert (status, reply["error"]["error"]) == (503, "the database server does not answer")
    assert "Traceback" not in caplog.text


def test_a_report_whose_sender_hangs_up_before_its_end_is_not_taken_in(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, taken = create_app(served.daemon.services), list[Any]()
    monkeypatch.setattr(served.daemon.services.doorbell, "take", lambda *asked: taken.append(asked))
    ask(app, EVENTS, b"", served.token, gone=True)
    assert not taken and "Traceback" not in caplog.text


def test_a_report_is_answered_once_it_is_committed_and_in_the_journal(served: Served) -> None:
    new = {"config": "name: o\nsearcher: {name: custom, metric: loss}\n", "unmanaged": True}
    made = served.session.put("/api/v1/experiments/by-external-id/1", new)["experiment"]["id"]
    trial_id = served.session.post("/api/v1/trials", json={"experimentId": made, "unmanaged": True})["trial"]["id"]
    served.session.post(f"/api/v1/trials/{trial_id}/start", json={"trialId": trial_id})
    app = create_app(served.daemon.services)
    for steps, group in enumerate(["training", "training", "validation"], 1):
        body = {"group": group, "metrics": {"stepsCompleted": steps, "metrics": {"avgMetrics": {"loss": 0.5}}}}
        answer = ask(app, f"/api/v1/trials/{trial_id}/metrics", json.dumps(body).encode(), served.token)
        assert answer == (200, {})
        with served.daemon.store.read() as connection:
            assert queries.trial(connection, trial_id).steps_completed == steps
            (run,) = queries.runs_of_trial(connection, trial_id)
        path = served.daemon.installation.home.run(run.id).attempt(0).journal
        assert [report.seq for report in read_journal(path)[0]] == list(range(1, steps + 1))


def test_a_ring_that_comes_while_too_much_is_taken_in_is_answered_without_its_lines(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines are in the journal, too: somebody is sent to read them there, and their sender may go on."""
    served.session.post("/api/v1/experiments", json={"config": YAML})
    run = started(served)
    doorbell, app = served.daemon.services.doorbell, create_app(served.daemon.services)
    runs_to_read: list[str] = []
    monkeypatch.setattr(doorbell._visitors, "rung", lambda id, **_: runs_to_read.append(id))
    monkeypatch.setattr(runs, "MOST_RING_BYTES", 2500)
    take, held = doorbell.take, Future[None]()

    def slow(attempt: Any, lines: Any) -> Any:
        commit = take(attempt, lines)
        assert commit is not None
        commit.result()
        return held

    monkeypatch.setattr(doorbell, "take", slow)
    read: list[int] = []
    path = f"/api/v1/runs/{run}/attempts/0/events"
    first, second, third = (Sender(app, path, f"{line(n, 1000)}\n".encode(), served.token, read) for n in (1, 2, 3))

    async def story() -> None:
        requests = [asyncio.create_task(sender.ask()) for sender in (first, second)]
        await until(lambda: len(read) == 2)
        await third.ask()
        assert len(read) == 2 and third.answer["appliedSeq"] == 2 and runs_to_read == [run]
        held.set_result(None)
        await asyncio.gather(*requests)
        await third.ask()

    asyncio.run(story())
    assert first.answer["appliedSeq"] == second.answer["appliedSeq"] == 2 and app.state.ring_bytes == 0
    large = Sender(app, path, f"{line(4, 5000)}\n".encode(), served.token, read)
    asyncio.run(large.ask())
    assert large.answer["appliedSeq"] == 4, "one that comes alone is always taken in"


@pytest.mark.parametrize("follow", ["false", "true"])
def test_who_does_not_read_an_answer_has_no_more_of_it_made(
    served: Served, monkeypatch: pytest.MonkeyPatch, follow: str
) -> None:
    served.put([experiment(1), *trained(trial(1))])
    log = served.daemon.installation.home.run("1.1.1").attempt(0).log(0)
    log.parent.mkdir(parents=True)
    line = logline.format(logline.LogLine(1.0, "INFO", 0, "stdout", "x" * 900))
    log.write_text(line * (20_000_000 // len(line)))
    sizes: list[int] = []

    def read_at(*asked: Any) -> bytes:
        piece = files.read_at(*asked)
        sizes.append(len(piece))
        return piece

    monkeypatch.setattr(lines, "read_at", read_at)
    reader = Sender(create_app(served.daemon.services), "/api/v1/trials/1/logs", b"", served.token, [])
    reader.scope |= {"method": "GET", "query_string": f"follow={follow}".encode()}

    async def story() -> None:
        never, bodies = asyncio.Event(), 0

        async def send(message: Message) -> None:
            nonlocal bodies
            bodies += message["type"] == "http.response.body"
            if bodies == 2:
                await never.wait()

        async def receive() -> Message:
            await never.wait()
            return {"type": "http.disconnect"}

        asked = asyncio.create_task(reader._app(reader.scope, receive, send))
        await until(lambda: bodies == 2)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert bodies == 2 and sum(sizes) <= 6 << 20, "of 20 MB"
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(story())


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
