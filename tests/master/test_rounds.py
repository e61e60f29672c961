"""Work that comes round goes on whatever one round meets, and ends when the master does."""

from __future__ import annotations

import queue
import threading

import pytest

from dethpc.errors import LeaseHeld, ShuttingDown, StoreUnavailable
from dethpc.master.rounds import Rounds
from tests.waiting import LONG_ENOUGH

NEVER = 3600.0


def test_a_round_that_fails_is_told_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    came: queue.SimpleQueue[int] = queue.SimpleQueue()
    failures: list[Exception] = [StoreUnavailable("away"), ValueError("bad")]

    def do() -> None:
        came.put(1)
        if failures:
            raise failures.pop()

    rounds = Rounds("some", do, 0.0, trouble="it could not be done")
    rounds.start()
    for _ in range(4):
        came.get(timeout=LONG_ENOUGH)
    rounds.stop()
    assert [record.getMessage() for record in caplog.records] == ["it could not be done; the master tries again"]


@pytest.mark.parametrize("end", [LeaseHeld("another's"), ShuttingDown("it ends")])
def test_a_master_that_is_not_the_one_any_more_does_nothing_more(end: Exception) -> None:
    came: list[int] = []

    def do() -> None:
        came.append(1)
        raise end

    rounds = Rounds("some", do, 0.0, trouble="it could not be done")
    rounds.start()
    rounds._thread.join(LONG_ENOUGH)
    rounds.stop()
    assert came == [1] and not rounds._thread.is_alive()


def test_who_wakes_it_does_not_wait_for_its_time() -> None:
    came = threading.Event()
    rounds = Rounds("some", came.set, NEVER, trouble="it could not be done")
    rounds.start()
    rounds.wake()
    assert came.wait(LONG_ENOUGH)
    rounds.stop()


def test_one_without_a_time_of_its_own_waits_until_it_is_woken() -> None:
    pauses, came = [], threading.Event()

    class Woken(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return super().wait(timeout)

    rounds = Rounds("some", came.set, None, trouble="it could not be done")
    rounds._woken = Woken()
    rounds.start()
    for _ in range(2):
        rounds.wake()
        assert came.wait(LONG_ENOUGH)
        came.clear()
    rounds.stop()
    assert {*pauses} == {None}


def test_an_end_breaks_off_a_rest_and_is_waited_for() -> None:
    begun, broken_off = threading.Event(), []

    def do() -> None:
        begun.set()
        try:
            rounds.rest(NEVER)
        except ShuttingDown:
            broken_off.append(1)
            raise

    rounds = Rounds("some", do, NEVER, first=0.0, trouble="it could not be done")
    rounds.start()
    assert begun.wait(LONG_ENOUGH)
    rounds.wake()  # who wakes it breaks off no rest
    rounds.stop()
    assert broken_off == [1] and rounds.stopping


def test_one_that_was_not_started_can_be_stopped() -> None:
    Rounds("some", lambda: None, NEVER, trouble="it could not be done").stop()
