"""What many people look at is made once for all of them, and never older than what they were told of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import Response, StreamingResponse

from dethpc.web import sharing
from dethpc.web.sharing import Shared
from tests.master.conftest import Served, experiment, served, site  # noqa: F401
from tests.waiting import LONG_ENOUGH
from tests.web.conftest import Visitor


class Rounds:
    round = 1
    spent = 0.0

    def cost(self, seconds: float) -> None:
        self.spent += seconds


class Maker:
    """Makes a page each time that it is let to, and counts."""

    def __init__(self, status: int = 200) -> None:
        self.made, self._status, self.go = 0, status, asyncio.Event()

    async def __call__(self) -> Response:
        self.made += 1
        number = self.made
        await self.go.wait()
        return Response(f"page {number}", self._status, media_type="text/html")


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, LONG_ENOUGH))


async def asked(shared: Shared, make: Maker, *keys: object) -> list[bytes]:
    tasks = [asyncio.ensure_future(shared.answer(key, make)) for key in keys]
    await asyncio.sleep(0)
    make.go.set()
    return [bytes((await task).body) for task in tasks]


def test_who_looks_at_the_same_gets_the_same_and_others_their_own() -> None:
    async def look() -> None:
        make, rounds = Maker(), Rounds()
        told = await asked(Shared(rounds), make, *["ada's"] * 50, "ben's")
        assert told == [b"page 1"] * 50 + [b"page 2"] and rounds.spent > 0

    run(look())


def test_what_was_made_before_a_round_is_not_shown_in_it() -> None:
    async def look() -> None:
        make, rounds = Maker(), Rounds()
        shared = Shared(rounds)
        assert await asked(shared, make, "a") == [b"page 1"]
        rounds.round += 1
        assert await asked(shared, make, "a", "a") == [b"page 2", b"page 2"]

    run(look())


def test_a_refusal_is_for_one_alone_and_so_is_a_stream() -> None:
    async def look() -> None:
        make = Maker(401)
        await asked(Shared(Rounds()), make, "a", "a")
        assert make.made > 2

        async def stream() -> Response:
            return StreamingResponse(iter(()))

        shared = Shared(Rounds())
        assert await shared.answer("s", stream) is not await shared.answer("s", stream)

    run(look())


def test_a_page_is_made_anew_for_who_opens_it_and_once_for_those_who_were_told(
    served: Served,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "LIFETIME", 10 * LONG_ENOUGH)
    served.put([experiment(1, name="first")])
    visitors = [Visitor(served.url).enter(served) for _ in range(2)]
    told = {"HX-Request": "true"}
    assert all("first" in visitor.get("experiments/1", **told).text for visitor in visitors)
    served.put([experiment(1, name="second")])  # past the ledger: no round is told
    assert "second" in visitors[1].get("experiments/1").text
    assert "first" in visitors[1].get("experiments/1", **told).text
    assert "second" in visitors[1].get("experiments/1?a=1", **told).text
    assert Visitor(served.url).get("experiments/1", **told).status == 303, "nobody is let in by it"
