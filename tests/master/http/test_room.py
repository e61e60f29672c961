"""A master that falls behind holds so many bytes of reports and no more; what waits is not read, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Scope

from dethpc.client.in_process import http_scope
from dethpc.domain.ids import AttemptId
from dethpc.domain.reports import Report
from dethpc.master.http.app import create_app
from dethpc.master.http.room import Room
from dethpc.master.http.routes import runs
from dethpc.rundir import files, lines, logline
from dethpc.rundir.journal import number_of, to_line
from dethpc.state import queries
from tests.master.conftest import Served, experiment, trained, trial
from tests.master.http.test_trials import started
from tests.waiting import LONG_ENOUGH

YAML = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"


class Sender:
    """One request; counts what the application has read of its body. ``gone``: the sender has hung up."""

    def __init__(self, app: ASGIApp, path: str, body: bytes, token: str, read: list[int]) -> None:
        self._app, self._body, self._read = app, body, read
        self.said: list[Message] = []
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
        self.said.append(message)

    @property
    def answer(self) -> Any:
        return json.loads(b"".join(message.get("body", b"") for message in self.said[1:]))


def line(seq: int, size: int) -> str:
    data = {"group": "training", "steps_completed": seq, "metrics": {"loss": 1 / seq, "words": "x" * size}}
    return to_line(Report(seq, 1.0, "metrics", data))


async def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_ENOUGH
    while not met():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


def test_bodies_that_find_no_room_are_not_read_and_all_of_them_count_in_the_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.session.post("/api/v1/experiments", json={"config": YAML})
    run = started(served)
    doorbell, app = served.daemon.services.doorbell, create_app(served.daemon.services)
    path = f"/api/v1/runs/{run}/attempts/0/events"
    asyncio.run(
        Sender(app, path, b"", served.token, []).ask()
    )  # brings the routes: the first line does not wait for them
    take = doorbell.take
    held: list[tuple[tuple[AttemptId, Any], Future[Any]]] = []

    def slow(attempt: AttemptId, lines: Any) -> Future[Any]:
        held.append(((attempt, lines), Future()))
        return held[-1][1]

    monkeypatch.setattr(doorbell, "take", slow)
    read: list[int] = []
    senders = [Sender(app, path, f"{line(n, 1000)}\n".encode(), served.token, read) for n in range(1, 101)]
    app.state.room = Room(10_000)

    async def story() -> None:
        asked = [asyncio.create_task(sender.ask()) for sender in senders]
        await until(lambda: len(held) == 8)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sum(read) <= 10_000 and len(held) == 8  # of a hundred thousand
        senders[50].gone = True
        for _ in range(99):
            await until(lambda: len(held) > 0)
            # Two threads hand them over: of two neighbours the second may come first.
            (attempt, lines), future = held.pop(held.index(min(held, key=lambda each: number_of(each[0][1][0]))))
            taken = take(attempt, lines)
            assert taken is not None
            future.set_result(taken.result())
        await asyncio.gather(*asked)

    asyncio.run(story())
    assert not senders[50].said, "who has hung up is not taken in: it tells it again"
    for n, sender in enumerate(senders[:50], 1):
        assert sender.answer["appliedSeq"] >= n
    assert all(sender.said[0]["status"] == 200 for sender in senders if not sender.gone)
    with served.daemon.store.read() as connection:
        assert queries.attempt(connection, run, 0).applied_seq == 50


def test_a_bell_that_finds_no_room_for_long_is_heard_without_its_lines(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines are in the journal, too: somebody is sent to read them there, and their sender may go on."""
    served.session.post("/api/v1/experiments", json={"config": YAML})
    run = started(served)
    app = create_app(served.daemon.services)
    read: list[int] = []
    wanted: list[str] = []
    monkeypatch.setattr(served.daemon.services.doorbell._visitors, "rung", lambda id, **_: wanted.append(id))
    monkeypatch.setattr(runs, "PATIENCE", 0.0)
    path = f"/api/v1/runs/{run}/attempts/0/events"
    ring = Sender(app, path, f"{line(1, 10)}\n".encode(), served.token, read)
    only_asks = Sender(app, path, b"", served.token, [])
    app.state.room = Room(1000)

    async def story() -> None:
        assert await app.state.room.enter(1000)
        await ring.ask()
        await only_asks.ask()
        app.state.room.leave(1000)

    asyncio.run(story())
    assert ring.answer["appliedSeq"] == 0 and not read and wanted == [run, run]
    assert only_asks.answer == ring.answer
    again = Sender(app, path, f"{line(1, 10)}\n".encode(), served.token, read)
    asyncio.run(again.ask())
    assert again.answer["appliedSeq"] == 1


def test_posted_metrics_wait_outside_too(served: Served) -> None:
    served.session.put("/api/v1/experiments/by-external-id/x", json={"config": YAML, "unmanaged": True})
    new = {"experimentId": 1, "hparams": {}, "unmanaged": True}
    trial = served.session.post("/api/v1/trials", json=new)["trial"]["id"]
    served.session.post(f"/api/v1/trials/{trial}/start", json={"trialId": trial, "resume": False})
    report = {"group": "training", "metrics": {"stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 0.5}}}}
    app = create_app(served.daemon.services)
    read: list[int] = []
    app.state.room = Room(1000)
    body = json.dumps(report).encode()
    senders = [Sender(app, f"/api/v1/trials/{trial}/metrics", body, served.token, read) for _ in range(3)]

    async def story() -> None:
        assert await app.state.room.enter(1000)
        asked = [asyncio.create_task(sender.ask()) for sender in senders]
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not read
        app.state.room.leave(1000)
        await asyncio.gather(*asked)

    asyncio.run(story())
    assert [sender.said[0]["status"] for sender in senders] == [200] * 3


@pytest.mark.parametrize("follow", ["false", "true"])
def test_who_does_not_read_an_answer_has_no_more_of_it_made(
    served: Served, monkeypatch: pytest.MonkeyPatch, follow: str
) -> None:
    served.put([experiment(1), *trained(trial(1))])
    log = served.daemon.installation.home.run("1.1.1").attempt(0).log(0)
    log.parent.mkdir(parents=True)
    line = logline.format(logline.LogLine(1.0, "INFO", 0, "stdout", "x" * 900))
    log.write_text(line * (20_000_000 // len(line)))
    taken: list[int] = []

    def read_at(*asked: Any) -> bytes:
        piece = files.read_at(*asked)
        taken.append(len(piece))
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
        assert bodies == 2 and sum(taken) <= 6 << 20, "of 20 MB"
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(story())


def test_who_comes_first_goes_in_first_and_who_gives_up_keeps_nobody_out() -> None:
    came: list[str] = []

    async def visit(room: Room, name: str, size: int, patience: float | None = None) -> None:
        if await room.enter(size, patience):
            came.append(name)

    async def story() -> None:
        room = Room(10)
        assert await room.enter(8)
        large = asyncio.create_task(visit(room, "large", 99))  # as much as there is: alone
        small = asyncio.create_task(visit(room, "small", 1))
        await asyncio.sleep(0)
        await visit(room, "empty", 0)
        await visit(room, "impatient", 1, 0.0)
        assert came == ["empty"]
        room.leave(8)
        await large
        assert came == ["empty", "large"]
        gives_up = asyncio.create_task(visit(room, "gives up", 10))
        await asyncio.sleep(0)
        gives_up.cancel()
        room.leave(99)
        await small
        room.leave(1)
        assert came == ["empty", "large", "small"]
        assert await room.enter(10, 0.0), "all of it is free again"

    asyncio.run(story())
