"""Pages hear of what was committed, and only of what concerns them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dethpc.master.http import commits as commits_module
from dethpc.master.http.commits import Commits
from tests.master.conftest import experiment, trial
from tests.waiting import LONG_ENOUGH


class Ledger:
    def listen(self, listener: Any) -> None:
        self.tell = listener


def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second round comes by itself while a test looks."""
    monkeypatch.setattr(commits_module, "LEAST", LONG_ENOUGH)
    monkeypatch.setattr(commits_module, "MOST", 4 * LONG_ENOUGH)


def test_a_page_hears_of_its_experiment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_module, "LEAST", 0.0)

    async def watch() -> list[str]:
        ledger, heard = Ledger(), []
        commits = Commits(ledger)

        async def page(of: str) -> None:
            async for _ in commits.changes(of):
                heard.append(of)

        pages = [asyncio.create_task(page(of)) for of in ("experiment-1", "experiment-2", "experiments")]
        await asyncio.sleep(0)
        await asyncio.to_thread(ledger.tell, [trial(5, experiment_id=2)])
        await asyncio.wait_for(_until(lambda: len(heard) == 2), LONG_ENOUGH)
        await asyncio.to_thread(ledger.tell, [experiment(7)])
        await asyncio.wait_for(_until(lambda: len(heard) == 3), LONG_ENOUGH)
        for each in pages:
            each.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
        assert not commits._watching, "who has gone is forgotten"
        return heard

    assert sorted(asyncio.run(watch())) == ["experiment-2", "experiments", "experiments"]


def test_a_flood_of_commits_is_one_word_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)

    async def watch() -> int:
        ledger, count = Ledger(), 0
        commits = Commits(ledger)

        async def page() -> None:
            nonlocal count
            async for _ in commits.changes("experiment-1"):
                count += 1

        task = asyncio.create_task(page())
        await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.to_thread(ledger.tell, [experiment(1)])
            await asyncio.sleep(0)
        await asyncio.wait_for(_until(lambda: count == 1), LONG_ENOUGH)
        task.cancel()
        return count

    assert asyncio.run(watch()) == 1


def test_what_was_committed_before_a_page_listened_is_told_at_once() -> None:
    """Nothing falls between the making of a page and its first word, nor while its connection was lost."""

    async def watch() -> None:
        ledger = Ledger()
        commits = Commits(ledger)
        since = commits.at
        ledger.tell([experiment(1)])
        await asyncio.wait_for(anext(commits.changes("experiment-1", since)), LONG_ENOUGH)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(commits.changes("experiment-1", commits.at)), 0.05)
        assert Commits(Ledger()).at != Commits(Ledger()).at, "of another master"

    asyncio.run(watch())


def test_all_pages_are_told_together_and_the_rarer_the_more_it_costs_to_make_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was made for one of them in a round is right for the others."""
    unhurried(monkeypatch)

    async def watch() -> None:
        ledger, times = Ledger(), asyncio.get_running_loop()
        commits, rounds = Commits(ledger), []

        async def page() -> None:
            async for _ in commits.changes("experiment-1"):
                rounds.append(commits.round)

        pages = [asyncio.create_task(page()) for _ in range(3)]
        await asyncio.sleep(0)
        ledger.tell([experiment(1)])
        await _until(lambda: len(rounds) == 3)
        commits.cost(2 * commits_module.LEAST * commits_module.SHARE)
        ledger.tell([experiment(1)])
        ledger.tell([experiment(1)])
        await _until(lambda: commits._next is not None)
        assert rounds == [1, 1, 1] and commits._next.when() - commits._told_at == pytest.approx(
            2 * commits_module.LEAST
        )
        commits.cost(1e9)
        commits._next.cancel()
        commits._tell()
        assert commits._next.when() - times.time() <= commits_module.MOST, "however much it costs"
        commits._told_at -= commits_module.MOST
        commits._tell()
        await _until(lambda: len(rounds) == 6)
        assert rounds[3:] == [2, 2, 2]
        for each in pages:
            each.cancel()
        await asyncio.gather(*pages, return_exceptions=True)

    asyncio.run(asyncio.wait_for(watch(), LONG_ENOUGH))


def test_pages_that_are_open_keep_no_server_from_its_end() -> None:
    async def watch() -> None:
        commits = Commits(Ledger())
        page = asyncio.ensure_future(anext(commits.changes("experiments")))
        await asyncio.sleep(0)
        commits.end()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(page, LONG_ENOUGH)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(commits.changes("experiments", "before")), LONG_ENOUGH)

    asyncio.run(watch())


def test_nobody_who_looks_costs_nothing() -> None:
    ledger = Ledger()
    Commits(ledger)
    ledger.tell([experiment(1)])


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
