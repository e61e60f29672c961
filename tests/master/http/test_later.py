"""An application that is made when it is first asked."""

from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dethpc.master.http.later import Later


async def nothing() -> Message:
    return {"type": "http.disconnect"}


async def nobody(_: Message) -> None:
    pass


def test_all_who_ask_at_once_wait_for_the_one_that_is_made_in_a_thread() -> None:
    made, asked = list[int](), list[Scope]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope)

    def make() -> ASGIApp:
        made.append(threading.get_ident())
        return app

    async def story() -> None:
        later = Later(make)
        await asyncio.gather(*(later({"number": n}, nothing, nobody) for n in range(20)))
        assert made and made[0] != threading.get_ident()

    asyncio.run(story())
    assert len(made) == 1 and sorted(scope["number"] for scope in asked) == list(range(20))


def test_what_could_not_be_made_is_made_for_the_next_request() -> None:
    failures = [OSError("the disk is away")]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["met"] = True

    def make() -> ASGIApp:
        if failures:
            raise failures.pop()
        return app

    async def story() -> None:
        later, scope = Later(make), dict[str, bool]()
        with pytest.raises(OSError, match="away"):
            await later(scope, nothing, nobody)
        await later(scope, nothing, nobody)
        assert scope["met"]

    asyncio.run(story())
