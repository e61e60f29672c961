"""Readers take turns; those who wait for the same share one reading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dethpc.client.session import Session
from dethpc.errors import NotFound
from dethpc.master.http.auth import mint_run_token
from dethpc.master.http.turns import Turns
from tests.master.conftest import Served, experiment, run_of, trial
from tests.waiting import LONG_ENOUGH

NEVER = 1e9  # seconds


class Reading:
    """One that goes on until it is let."""

    def __init__(self, answer: bytes = b"", failure: Exception | None = None) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self._answer, self._failure = answer, failure

    def __call__(self) -> bytes:
        self.begun.set()
        assert self.goes_on.wait(LONG_ENOUGH)
        if self._failure is not None:
            raise self._failure
        return self._answer

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, LONG_ENOUGH)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


async def turn_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@in_a_loop
async def test_who_asks_before_a_reading_begins_shares_it_and_who_asks_later_does_not() -> None:
    turns = Turns(1, NEVER)
    first, second, third = Reading(b"first"), Reading(b"second"), Reading(b"third")
    asked = [asyncio.create_task(turns.look("a", first))]
    await first.has_begun()
    asked += [asyncio.create_task(turns.look("a", second)) for _ in range(3)]
    await turn_of_the_loop()
    first.goes_on.set()
    await second.has_begun()
    asked.append(asyncio.create_task(turns.look("a", third)))
    second.goes_on.set()
    third.goes_on.set()
    assert await asyncio.gather(*asked) == [b"first", b"second", b"second", b"second", b"third"]


@in_a_loop
async def test_who_asks_for_something_else_does_not_share() -> None:
    turns = Turns(1, NEVER)
    first, mine, theirs = Reading(), Reading(b"mine"), Reading(b"theirs")
    asked = [asyncio.create_task(turns.look("first", first))]
    await first.has_begun()
    asked.append(asyncio.create_task(turns.look(("mine", "/a"), mine)))
    asked.append(asyncio.create_task(turns.look(("theirs", "/a"), theirs)))
    for reading in (first, mine, theirs):
        reading.goes_on.set()
    assert await asyncio.gather(*asked) == [b"", b"mine", b"theirs"]


@in_a_loop
async def test_no_more_read_at_a_time_and_who_came_first_is_first() -> None:
    turns = Turns(2, NEVER)
    readings = [Reading(str(n).encode()) for n in range(5)]
    asked = [asyncio.create_task(turns.look(n, reading)) for n, reading in enumerate(readings)]
    for n, reading in enumerate(readings):
        await reading.has_begun()
        assert not any(each.begun.is_set() for each in readings[n + 2 :])
        reading.goes_on.set()
        assert await asked[n] == str(n).encode()


@in_a_loop
async def test_what_takes_long_holds_up_nobody() -> None:
    turns = Turns(1, 0.0)
    long, short = Reading(b"long"), Reading(b"short")
    slow, fast = asyncio.create_task(turns.look("long", long)), asyncio.create_task(turns.look("short", short))
    short.goes_on.set()
    assert await fast == b"short" and not slow.done()
    long.goes_on.set()
    assert await slow == b"long"
    following = Reading(b"following")
    following.goes_on.set()
    assert await turns.look("following", following) == b"following", "its place was given back once"


@in_a_loop
async def test_a_failure_reaches_those_who_share_it_and_nobody_else() -> None:
    turns = Turns(1, NEVER)
    first, fails, works = Reading(b"first"), Reading(failure=NotFound("gone")), Reading(b"works")
    asked = [asyncio.create_task(turns.look("first", first))]
    await first.has_begun()
    asked += [asyncio.create_task(turns.look("fails", fails)) for _ in range(2)]
    asked.append(asyncio.create_task(turns.look("works", works)))
    for reading in (first, fails, works):
        reading.goes_on.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert found[0] == b"first" and found[3] == b"works"
    assert all(isinstance(each, NotFound) for each in found[1:3])


@in_a_loop
async def test_who_gives_up_takes_nothing_from_the_others() -> None:
    turns = Turns(1, NEVER)
    first, shared, nobodys = Reading(b"first"), Reading(b"shared"), Reading()
    asked = [asyncio.create_task(turns.look("first", first))]
    await first.has_begun()
    leaves = asyncio.create_task(turns.look("shared", shared))
    asked += [asyncio.create_task(turns.look("shared", Reading())) for _ in range(2)]
    alone = asyncio.create_task(turns.look("nobody's", nobodys))
    await turn_of_the_loop()
    leaves.cancel()
    alone.cancel()
    await asyncio.gather(leaves, alone, return_exceptions=True)
    shared.goes_on.set()
    first.goes_on.set()
    assert await asyncio.gather(*asked) == [b"first", b"shared", b"shared"]
    assert not nobodys.begun.is_set(), "nobody was left to be told"


@in_a_loop
async def test_who_gives_up_while_it_is_read_leaves_the_turn_to_the_next_one() -> None:
    turns = Turns(1, NEVER)
    left, following = Reading(failure=NotFound("nobody hears of it")), Reading(b"following")
    leaves = asyncio.create_task(turns.look("left", left))
    await left.has_begun()
    leaves.cancel()
    asked = asyncio.create_task(turns.look("following", following))
    await turn_of_the_loop()
    assert not following.begun.is_set()
    left.goes_on.set()
    following.goes_on.set()
    assert await asked == b"following" and leaves.cancelled()


def test_what_was_committed_is_seen_by_who_asks_then(served: Served) -> None:
    for n in range(1, 30):
        served.put([experiment(n)])
        assert served.session.get("/api/v1/experiments", {"limit": -2})["pagination"]["total"] == n


def test_nobody_shares_what_another_token_asked_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    look = Turns.look

    async def noted(self: Turns, key: Any, read: Callable[[], bytes]) -> bytes:
        asked.append(key)
        return await look(self, key, read)

    monkeypatch.setattr(Turns, "look", noted)
    served.put([experiment(1)])
    other = Session(served.url, served.session.post("/api/v1/tokens", {"userId": 1})["token"])
    asked.clear()
    for session in (served.session, other):
        session.get("/api/v1/experiments/1")
    other.close()
    assert len({key[0] for key in asked}) == 2 and len({key[1:] for key in asked}) == 1


def test_a_run_waits_for_nobodys_turn(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    own = trial(1)
    served.put([experiment(1), own])
    run = run_of(own)
    session = served.as_run(run, mint_run_token(run.id)[0])

    async def never(self: Turns, key: Any, read: Callable[[], bytes]) -> bytes:
        raise NotFound("it took a turn")

    for each in (session, served.session):
        each.get("/api/v1/trials/1")  # with the server's proof, which anybody asks for
    monkeypatch.setattr(Turns, "look", never)
    assert session.get("/api/v1/trials/1")["trial"]["id"] == 1
    with pytest.raises(NotFound, match="it took a turn"):
        served.session.get("/api/v1/trials/1")
    session.close()
