"""A stream of the API as server-sent events: bounded, and over when nobody reads it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dethpc.web import following
from tests.master.conftest import Served, experiment, trial
from tests.waiting import LONG_ENOUGH
from tests.web.conftest import Visitor


class Log:
    """An application that says lines for ever, or ``count`` of them."""

    def __init__(self, count: int | None = None, status: int = 200, quiet_after: int | None = None) -> None:
        self.said, self.ended = 0, asyncio.Event()
        self._count, self._status, self._quiet_after = count, status, quiet_after

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        try:
            await send({"type": "http.response.start", "status": self._status, "headers": []})
            while self.said != self._count:
                if self.said == self._quiet_after:
                    await asyncio.Event().wait()
                line = {"id": str(self.said), "timestamp": f"2026-01-01T00:00:{self.said % 60:02d}Z", "log": "é"}
                body = json.dumps({"result": {**line, "level": "LOG_LEVEL_INFO"}}).encode() + b"\n"
                half = len(body) // 2
                await send({"type": "http.response.body", "body": body[:half], "more_body": True})
                await send({"type": "http.response.body", "body": body[half:], "more_body": True})
                self.said += 1
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.ended.set()


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, LONG_ENOUGH))


def test_a_log_is_told_whole_and_its_end_is_said() -> None:
    async def read() -> list[bytes]:
        return [event async for event in following.events(Log(3), "/x", {})]

    told = run(read())
    rows = [json.loads(event.partition(b"data: ")[2]) for event in told if b"event: lines" in event]
    assert [row["id"] for (row,) in rows] == ["0", "1", "2"] and rows[0][0]["text"] == "é"
    assert b"id: 2026-01-01T00:00:02Z\n" in told[-2] and told[-1] == b"event: over\ndata:\n\n"


def test_who_goes_ends_the_reading_and_who_reads_slowly_slows_it_down() -> None:
    async def look() -> int:
        log = Log()
        events = following.events(log, "/x", {})
        await anext(events)
        await anext(events)
        for _ in range(200):
            await asyncio.sleep(0)
        ahead = log.said
        await events.aclose()
        await log.ended.wait()
        return ahead

    assert run(look()) <= following.AHEAD + 2


def test_a_quiet_stream_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "BEAT", 0.01)

    async def look() -> None:
        log = Log(quiet_after=1)
        events = following.events(log, "/x", {})
        told = [await anext(events) for _ in range(4)]
        assert told[2:] == [following.HERE] * 2
        await events.aclose()
        await log.ended.wait()

    run(look())


def test_a_stream_is_asked_for_again_after_a_while_without_saying_that_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "LONGEST", -1.0)

    async def read() -> list[bytes]:
        return [event async for event in following.events(Log(), "/x", {})]

    assert not any(b"over" in event for event in run(read()))


@pytest.mark.parametrize(("status", "told"), [(404, True), (503, False)])
def test_a_refusal_is_told_and_trouble_is_asked_about_again(status: int, told: bool) -> None:
    async def read() -> bytes:
        return b"".join([event async for event in following.events(Log(0, status), "/x", {})])

    assert (b"event: refused" in run(read())) is told


def test_a_login_is_needed_and_a_place_that_is_none_is_no_place(served: Served, stranger: Visitor) -> None:
    served.put([experiment(1), trial(1)])
    assert stranger.get("trials/1/logs/follow").status == 401
    visitor = Visitor(served.url).enter(served)
    for query in ("since=x", "since=2026-01-01T00:00:00Z&level=no&rank=x", "since=9999-99-99"):
        got = visitor.get(f"trials/1/logs/follow?{query}")
        assert got.status == 200 and got.headers["content-type"].startswith("text/event-stream")
        assert "event: over" in got.text, "the trial has ended"
    assert "event: refused\ndata: 404" in visitor.get("trials/77/logs/follow").text


def test_a_line_without_end_is_cut_and_what_is_meant_for_terminals_left_out() -> None:
    line = {"timestamp": "2026-01-01T00:00:00Z", "message": "\x1b[1;31mred\x1b[0m \x1b]0;title\x07" + "y" * 1_000_000}
    text = following.row(line)["text"]
    assert text.startswith("red y") and text.endswith("… and 996,004 more characters") and len(text) < 5000
