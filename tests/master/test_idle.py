"""When a master that has nothing to do ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dethpc.errors import ShuttingDown
from dethpc.master.idle import Idle
from tests.master.conftest import Served
from tests.master.http.test_jobs import YAML

HOUR = 3600.0


class Traffic:
    requests, answering = 0, False


class Clock:
    """What ``Idle`` reads."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr("dethpc.master.idle.time", clock)
    yield clock


def idle_of(served: Served, traffic: Traffic, ended: list[str]) -> Idle:
    daemon = served.daemon
    end = lambda: ended.append("end")  # noqa: E731
    return Idle(HOUR, traffic, daemon.parts, end)


def look(idle: Idle, clock: Clock, later: float) -> bool:
    """Whether it ends when so much time has gone by."""
    clock.now += later
    try:
        idle.check()
    except ShuttingDown:
        return True
    return False


def test_it_ends_after_so_long_without_a_request_and_not_before(served: Served, clock: Clock) -> None:
    traffic, ended = Traffic(), list[str]()
    idle = idle_of(served, traffic, ended)
    assert not look(idle, clock, 0.9 * HOUR), "the first look begins the time"
    assert not look(idle, clock, 0.9 * HOUR)
    traffic.requests += 1
    assert not look(idle, clock, 0.2 * HOUR), "somebody asked since"
    assert not look(idle, clock, 0.99 * HOUR)
    assert look(idle, clock, 0.02 * HOUR) and ended == ["end"]


def test_it_stays_while_an_answer_is_on_its_way_and_while_an_experiment_waits(served: Served, clock: Clock) -> None:
    traffic, ended = Traffic(), list[str]()
    idle = idle_of(served, traffic, ended)
    traffic.answering = True
    assert not any(look(idle, clock, HOUR) for _ in range(5)), "a log that is followed"
    traffic.answering = False
    created: dict[str, Any] = served.session.post("/api/v1/experiments", json={"config": YAML, "activate": False})
    assert look(idle, clock, HOUR) and ended == ["end"], "one that is paused waits for its owner"
    served.session.post(f"/api/v1/experiments/{created['experiment']['id']}/activate")
    assert not any(look(idle, clock, HOUR) for _ in range(5)), "its trials are to be submitted"
