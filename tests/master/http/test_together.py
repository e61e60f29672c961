"""Reports are handed to a thread together; each has its own answer."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from dethpc.errors import Refused, StoreError
from dethpc.master.http.together import MOST, THREADS, Together


def test_what_waits_is_begun_at_once_and_no_failure_is_anothers() -> None:
    threads: set[int] = set()
    commits: list[Future[Any]] = []

    def begin(n: int) -> Future[Any] | None:
        threads.add(threading.get_ident())
        if n == 1:
            raise Refused("1 is over")
        if n == 2:
            return None
        future: Future[Any] = Future()
        commits.append(future)
        if len(commits) == 18:  # the last: nobody was waited for before
            commits[0].set_exception(StoreError("the disk is full"))
            for each in commits[1:]:
                each.set_result([])
        return future

    async def story() -> list[Any]:
        together = Together()
        return await asyncio.gather(*(together.do(lambda n=n: begin(n)) for n in range(20)), return_exceptions=True)

    found = asyncio.run(story())
    assert isinstance(found[0], StoreError) and isinstance(found[1], Refused)
    assert found[2:] == [None] * 18 and len(threads) == 1


def test_who_comes_while_others_are_committed_is_begun_meanwhile_and_in_order() -> None:
    begun: list[int] = []
    first: Future[Any] = Future()

    def begin(n: int) -> Future[Any] | None:
        begun.append(n)
        return first if n == 0 else None

    async def story() -> None:
        together = Together()
        waits = asyncio.create_task(together.do(lambda: begin(0)))
        while not begun:
            await asyncio.sleep(0)
        many = [asyncio.create_task(together.do(lambda n=n: begin(n))) for n in range(1, 3 * MOST)]
        await asyncio.gather(*many)
        assert not waits.done() and begun == list(range(3 * MOST))
        first.set_result([])
        await waits

    asyncio.run(story())


def test_who_hangs_up_takes_nothing_back_and_keeps_nobody_waiting() -> None:
    release, begun, ended = threading.Event(), [], []

    def slow() -> None:
        begun.append("slow")
        release.wait()
        ended.append("slow")

    async def story() -> None:
        together = Together()
        for n in range(THREADS):  # one after the other, so that each thread has one
            gone = asyncio.create_task(together.do(slow))
            while len(begun) <= n:
                await asyncio.sleep(0)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
        release.set()
        await together.do(lambda: ended.append("next"))
        assert ended[0] == "slow", "no thread was free before"
        while len(ended) <= THREADS:
            await asyncio.sleep(0)
        assert sorted(ended) == ["next"] + ["slow"] * THREADS

    asyncio.run(story())
