"""How often run directories are looked at, counted in calls of the operating system under virtual time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from dethpc.domain.ids import AttemptId
from dethpc.master.http.doorbell import Doorbell
from tests import doorbells
from tests.master.reconciler_world import World

RUNS = 4
PACE = {"files": 0.5, "quiet": 60.0, "fastest_poll": 10.0, "slowest_poll": 60.0}


class Clock:
    def __init__(self) -> None:
        self.now = 100_000.0


class Quiet:
    """A world whose time moves by ``goes_by`` alone, and what it has asked of the file system."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world, self.clock = world, clock
        self.asked: Counter[str] = Counter()  # run id -> calls
        self.bell = Doorbell(world.ledger, world.store, world.live)

    def ids(self) -> list[str]:
        return [run.id for run in self.world.runs()]

    def ring(self, id: str, *lines: str, k: int = 0) -> None:
        doorbells.post(self.bell, AttemptId(id, k), list(lines))

    def goes_by(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Cycles as the reconciler's thread makes them, for so long or until something is so; how long that took."""
        begin = self.clock.now
        while self.clock.now - begin < seconds and not until():
            self.world.cycle()
            if not self.world.live.changed.is_set():
                self.clock.now += PACE["files"]
            self.world.live.changed.clear()
        return self.clock.now - begin

    def saw(self, id: str, steps: int) -> Callable[[], bool]:
        return lambda: self.world.trial(int(id.split(".")[1])).steps_completed >= steps

    def noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        root = str(self.world.home.run("1.1.1").path.parent) + os.sep

        def noting(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(root):
                self.asked[os.fspath(path)[len(root) :].split(os.sep)[0]] += 1
            return call(path, *arguments, **options)

        return noting


@pytest.fixture
def quiet(worlds: Callable[..., World]) -> Iterator[Quiet]:
    """Every run's first attempt has started, and nobody has told the master of it."""
    clock = Clock()
    with mock.patch("time.monotonic", lambda: clock.now):
        world = worlds(trials=RUNS, **PACE)
        quiet = Quiet(world, clock)
        world.cycle()
        for id in quiet.ids():
            world.node_starts(id)
        with mock.patch.multiple(os, **{name: quiet.noted(getattr(os, name)) for name in CALLS}):
            yield quiet


CALLS = ("stat", "lstat", "open", "listdir", "scandir", "mkdir")


def test_an_idle_run_whose_bell_is_heard_costs_a_metadata_operation_in_ten_seconds_at_most(quiet: Quiet) -> None:
    for id in quiet.ids():
        quiet.ring(id)
    quiet.goes_by(5.0)
    quiet.asked.clear()
    quiet.goes_by(600.0)
    assert set(quiet.asked) == set(quiet.ids()), "every run is still looked at now and then"
    assert max(quiet.asked.values()) <= 0.1 * 600


def test_an_idle_run_that_nobody_hears_of_is_looked_at_ever_more_seldom(quiet: Quiet) -> None:
    quiet.goes_by(600.0)
    assert max(quiet.asked.values()) <= 0.5 * 600
    quiet.asked.clear()
    quiet.goes_by(600.0)
    assert max(quiet.asked.values()) <= 0.1 * 600


def test_a_run_that_rings_is_read_without_a_look(quiet: Quiet) -> None:
    (id, *_) = quiet.ids()
    quiet.ring(id)
    quiet.goes_by(5.0)
    quiet.asked.clear()
    for steps in range(1, 51):
        said = {"group": "training", "steps_completed": steps, "metrics": {"loss": 1.0}}
        before = quiet.asked[id]
        line = quiet.world.node_says(id, "metrics", **said)
        quiet.asked[id] = before  # without those of the node, which this process plays
        quiet.ring(id, line)
        quiet.goes_by(6.0)
    assert quiet.saw(id, 50)()
    assert quiet.asked[id] <= 0.1 * 300


def test_what_a_run_writes_between_two_rings_is_left_to_its_bell(quiet: Quiet) -> None:
    (id, *_) = quiet.ids()
    quiet.goes_by(5.0)
    lines: list[str] = []
    quiet.asked.clear()
    for steps in range(1, 202):
        said = {"group": "training", "steps_completed": steps, "metrics": {"loss": 1.0}}
        if steps % 4 == 1:
            quiet.ring(id, *lines)
            lines.clear()
        before = quiet.asked[id]
        lines.append(quiet.world.node_says(id, "metrics", **said))
        quiet.asked[id] = before  # without those of the node, which this process plays
        quiet.goes_by(0.5)  # a look finds something at any time
    assert quiet.saw(id, 200)()
    assert quiet.asked[id] <= 0.3 * 100


@pytest.mark.parametrize("silence", [2.0, 100.0, 1000.0])
def test_what_a_run_writes_without_ringing_is_seen_after_an_eighth_of_its_silence(quiet: Quiet, silence: float) -> None:
    (id, *_) = quiet.ids()
    quiet.goes_by(1.0)
    for steps in (1, 2, 3):
        quiet.goes_by(silence)
        quiet.world.node_reports(id, steps=steps)
        late = quiet.goes_by(100.0, quiet.saw(id, steps))
        assert late <= min(60.0, max(0.5, 1.2 * silence / 8)) + 0.5


def test_a_run_whose_bell_falls_silent_is_looked_at_once_a_minute_and_then_at_its_own_rate(quiet: Quiet) -> None:
    (id, *_) = quiet.ids()
    quiet.ring(id)
    quiet.goes_by(300.0)
    quiet.world.node_reports(id, steps=1)
    assert quiet.goes_by(100.0, quiet.saw(id, 1)) <= 60.5
    quiet.goes_by(16.0)
    quiet.world.node_reports(id, steps=2)
    assert quiet.goes_by(100.0, quiet.saw(id, 2)) <= 3.0


def test_a_bell_has_the_end_of_its_own_run_seen_and_no_other_looked_at(quiet: Quiet) -> None:
    (id, *others) = quiet.ids()
    for each in quiet.ids():
        quiet.ring(each)
    quiet.goes_by(30.0)
    quiet.asked.clear()
    quiet.world.node_ends(id)
    quiet.ring(id)
    quiet.world.cycle()
    assert quiet.world.ended(id)
    assert not any(quiet.asked[other] for other in others)


def test_the_next_attempt_is_looked_for_when_its_bell_or_the_scheduler_tells_of_it(quiet: Quiet) -> None:
    first, second, third, *_ = quiet.ids()
    quiet.goes_by(30.0)
    for id in (first, second, third):
        quiet.world.node_starts(id, k=1)
    quiet.ring(first, k=1)
    quiet.world.cycle()
    assert quiet.world.run(first).attempt == 1
    quiet.world.fake.requeue(quiet.world.job(second).job_id)
    quiet.goes_by(60.5, lambda: quiet.world.run(second).attempt == 1)
    assert quiet.world.run(second).attempt == 1
    assert quiet.world.run(third).attempt == 0, "neither spoke of it"


def test_a_master_that_starts_finds_the_attempt_that_nobody_told_it_of(quiet: Quiet) -> None:
    (id, *_) = quiet.ids()
    quiet.goes_by(30.0)
    quiet.world.node_starts(id, k=1)
    quiet.world.reconciler = quiet.world.start()
    quiet.world.cycle()
    assert quiet.world.run(id).attempt == 1
