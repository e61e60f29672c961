"""The simulator as the judge: production master, ledger, reconciler and run directories in virtual time. A failure prints its seed;
``python -m benchmarks.faults replay SEED`` tells its story. ``tests/simulator/world`` says what is simulated and what is judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.world import story
from tests.simulator.world.mutations import MUTATIONS, Mutation, caught
from tests.simulator.world.story import Faults

AT_ONCE, EVENTS = 8, 300
"""Stories of one test, and what happens in each before its faults stop. Eight such tests are more than 20,000 events."""

CHEAP = ("C1:", "C2:", "C4:", "C7:", "C8:", "C9:", "C12:", "jobs of runs", "memory keeps", "another cluster's")
"""Mutations that the judge finds within a second or two; ``python -m benchmarks.mutations`` tries all of them."""


@pytest.mark.parametrize("seed", range(3))
def test_an_undisturbed_world_trains_every_step_once(seed: int) -> None:
    told = story(seed, Faults())
    assert told.judge.checks and told.judge.reports


@pytest.mark.parametrize("first", range(0, 64, AT_ONCE))
def test_whatever_befalls_it_nothing_is_lost_doubled_or_frozen(first: int) -> None:
    happened = arrays = 0
    for seed in range(first, first + AT_ONCE):
        told = story(seed, events=EVENTS)
        assert told.counts and told.judge.checks and told.judge.reports
        happened += told.events
        arrays += told.slurm.arrays
    assert happened >= AT_ONCE * EVENTS and arrays


def test_masters_that_freeze_again_and_again_lose_nothing() -> None:
    """One of them is struck a second time while it goes on and does not know of its successor yet."""
    frozen = "master frozen, another takes over"
    told = story(14, Faults(every=8.0, wishes=30.0, kinds=(frozen,)), events=EVENTS)
    assert told.counts["another master took over from a frozen one"] > 1


def test_a_master_that_cannot_see_the_scheduler_concludes_nothing_and_hands_over() -> None:
    kind = "master cannot see the scheduler"
    hidden = 0
    for seed in range(6):
        told = story(seed, Faults(every=20.0, wishes=120.0, kinds=(kind,)), events=EVENTS)
        hidden += told.counts[kind]
        assert told.judge.ends.keys() <= {"COMPLETED", "CANCELED"}
    assert hidden > 6


TELL = """
from tests.simulator.world import story
told = story(100498, events=150)
print(told.trace, told.events, told.judge.reports, sorted(told.counts.items()))
"""


def test_a_seed_is_the_same_story_in_every_process() -> None:
    """All that happens and every change to a file, in its order: a failure can be told again."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TELL],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            stdout=subprocess.PIPE,
        )
        for hashes in ("0", "7")
    ]
    first, second = (process.communicate()[0] for process in processes)
    assert first == second and first


@pytest.mark.parametrize(
    "mutation", [each for each in MUTATIONS if each.name.startswith(CHEAP)], ids=lambda each: each.name
)
def test_the_judge_finds_a_bug_that_was_put_back(mutation: Mutation) -> None:
    assert caught(mutation, range(12))
