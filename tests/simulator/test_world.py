"""The simulator as the judge: production master, ledger, reconciler and run directories in virtual time. A failure prints its seed;
``python benchmarks/faults.py replay SEED`` tells its story."""

from __future__ import annotations

import pytest

from tests.simulator.world import story
from tests.simulator.world.story import Faults


@pytest.mark.parametrize("seed", range(3))
def test_an_undisturbed_world_trains_every_step_once(seed: int) -> None:
    told = story(seed, Faults())
    assert told.judge.checks and told.judge.reports


@pytest.mark.parametrize("seed", [6, 8, 14])
def test_whatever_befalls_it_nothing_is_lost_doubled_or_frozen(seed: int) -> None:
    told = story(seed, events=300)
    assert told.counts and told.judge.checks and told.judge.reports
