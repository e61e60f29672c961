"""Every method against a world that hypothesis plays: trials report, crash, are killed and invalid in any order, and the master
crashes and folds its records anew at any point."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dethpc.config.sections.hyperparameters import parse_space
from dethpc.searcher.base import Action, Continue, Create, Exit, Note, Searcher, Stop, Wait
from dethpc.searcher.sampling import sample
from tests.example_counts import examples
from tests.searcher.sections import searcher

SPACE: dict[str, Any] = {
    "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10, "count": 3},
    "net": {
        "width": {"type": "int", "minval": 1, "maxval": 64, "count": 2},
        "kind": {"type": "categorical", "vals": ["a", "b"]},
    },
    "batch": 32,
}
TIMES = {"time_metric": "batches", "max_time": 64}
LENGTH = {"max_length": {"batches": 64}}
PBT_RULES = {
    "replace_function": {"truncate_fraction": 0.25},
    "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.1},
}
METHODS: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "random": {"name": "random", "max_trials": 12, "max_concurrent_trials": 3},
    "grid": {"name": "grid", "max_concurrent_trials": 4},
    "asha": {"name": "adaptive_asha", "max_trials": 20, "max_concurrent_trials": 5, **TIMES},
    "asha conservative": {"name": "adaptive_asha", "max_trials": 17, "mode": "conservative", "divisor": 3, **TIMES},
    "asha all at once": {"name": "adaptive_asha", "max_trials": 20, "max_concurrent_trials": 0, **LENGTH},
    "async_halving": {"name": "async_halving", "max_trials": 15, "num_rungs": 3, "divisor": 2, **TIMES},
    "adaptive": {"name": "adaptive", "budget": {"batches": 600}, "mode": "aggressive", "max_rungs": 3, **LENGTH},
    "adaptive_simple": {"name": "adaptive_simple", "max_trials": 21, "max_rungs": 3, "divisor": 3, **LENGTH},
    "sync_halving": {"name": "sync_halving", "num_rungs": 3, "divisor": 2, "budget": {"batches": 300}, **LENGTH},
    "pbt": {"name": "pbt", "population_size": 8, "num_rounds": 4, "length_per_round": {"batches": 10}, **PBT_RULES},
}  # fmt: skip
EXPECTED = {"single": 1, "random": 12, "grid": 3 * 2 * 2, "asha": 20, "asha conservative": 17, "asha all at once": 20}
EXPECTED |= {"async_halving": 15, "adaptive_simple": 21, "pbt": 8 + 3 * 2}


@dataclass
class Trial:
    lengths: list[float]
    trained: float = 0.0
    waits: bool = False
    parked: bool = False
    checkpoint: bool = False
    stopping: bool = False
    open: bool = True


@dataclass
class World:
    """What the engine would do, with the records that a database would hold."""

    config: dict[str, Any]
    seed: int
    rng: random.Random
    trouble: float = 0.0
    made: list[Create] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ends: dict[int, Exit] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.search = self.fresh()
        self.act(self.search.start())

    def fresh(self) -> Searcher:
        return searcher({"metric": "loss", **self.config}, SPACE, self.seed)

    def fold(self) -> None:
        """Crash: nothing is left but the records."""
        before = self.search.describe()
        self.search = self.fresh()
        for create in self.made:
            self.search.created(create.index, create.hparams, create.search)
        for note in json.loads(json.dumps([[n.index, n.kind, n.data] for n in self.notes], allow_nan=False)):
            self.search.noted(*note)
        for index in sorted(self.ends):
            self.search.closed(index, self.ends[index])
        assert self.search.describe() == before
        assert self.search.created_count == len(self.made)

    def act(self, actions: list[Action]) -> None:
        decided = [a.index for a in actions if isinstance(a, (Stop, Wait, Continue))]
        assert len(decided) == len(set(decided)), "one decision for each trial"
        for action in actions:
            self.said.append(repr(action))
            trial = None if isinstance(action, Create) else self.trials[action.index]
            if isinstance(action, Create):
                assert action.index == len(self.made)
                assert action.source is None or self.trials[action.source].checkpoint, "a copy needs a checkpoint"
                self.made.append(action)
                self.trials.append(Trial([float(length) for length in action.search.get("lengths", [64])]))
                self.search.created(action.index, action.hparams, action.search)
            elif isinstance(action, Note):
                self.notes.append(action)
                self.search.noted(action.index, action.kind, action.data)
            elif isinstance(action, Stop):
                assert trial and trial.open and not trial.stopping and action.reason
                trial.stopping = True
            elif isinstance(action, Wait):
                assert trial and trial.open and not trial.waits
                trial.waits, trial.parked = True, False
            elif trial and trial.open:
                assert not trial.stopping
                trial.lengths.append(action.length)
                trial.waits = False
        for index, trial in enumerate(self.trials):
            if trial.stopping and trial.parked and trial.open:
                self.close(index, Exit.COMPLETED)

    def close(self, index: int, how: Exit) -> None:
        self.trials[index].open = False
        self.ends[index] = how
        self.search.closed(index, how)
        self.act(self.search.exited(index, how))

    def happen(self) -> None:
        """Something happens to a trial that can move."""
        index = self.rng.choice([i for i, t in enumerate(self.trials) if t.open and not (t.waits and t.parked)])
        trial, luck = self.trials[index], self.rng.random()
        if luck < self.trouble:
            # A trial that was asked to stop ends as asked, whatever happens to it.
            hows = [Exit.COMPLETED] if trial.stopping else [Exit.ERRORED, Exit.CANCELED, Exit.COMPLETED]
            if not trial.trained:
                hows.append(Exit.INVALID_HP)
            self.close(index, self.rng.choice(hows))
        elif trial.stopping:
            self.close(index, Exit.COMPLETED)
        elif trial.waits:
            trial.parked = trial.checkpoint = True
            self.act(self.search.parked(index))
        elif trial.trained >= max(trial.lengths):
            self.close(index, Exit.COMPLETED)
        else:
            ahead = [length for length in trial.lengths if length > trial.trained]
            trial.trained = self.rng.choice(ahead)  # it may pass several
            trial.parked = False
            metric = math.nan if self.rng.random() < self.trouble else self.rng.choice([0.5, self.rng.random()])
            self.act(self.search.validated(index, trial.trained, metric))

    def play(self, crashes: random.Random | None) -> None:
        for _ in range(3000):
            if not any(trial.open for trial in self.trials):
                assert self.search.over
                return
            assert any(t.open and not (t.waits and t.parked) for t in self.trials), "everybody waits for somebody"
            self.happen()
            if crashes is not None and crashes.random() < 0.2:
                self.fold()
            assert 0.0 <= self.search.progress <= 1.0
        raise AssertionError("the search does not end")


def played(method: str, seed: int, order: int, trouble: float, crashes: random.Random | None = None) -> World:
    world = World(METHODS[method], seed, random.Random(order), trouble)
    world.play(crashes)
    return world


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31), order=st.integers(0, 10**6), trouble=st.sampled_from([0.0, 0.05, 0.3]))
def test_crash_and_replay_at_any_point_give_the_same_decisions(
    method: str, seed: int, order: int, trouble: float
) -> None:
    through = played(method, seed, order, trouble)
    crashed = played(method, seed, order, trouble, random.Random(order))
    assert crashed.said == through.said
    assert crashed.search.describe() == through.search.describe()


@pytest.mark.parametrize("method", EXPECTED)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(order=st.integers(0, 10**6), trouble=st.sampled_from([0.0, 0.1]))
def test_the_number_of_trials_is_what_the_config_asks(method: str, order: int, trouble: float) -> None:
    world = played(method, 3, order, trouble)
    invalid = sum(how is Exit.INVALID_HP for how in world.ends.values())
    replaced = 0 if method in ("single", "grid") else invalid
    if method == "pbt" and trouble:
        assert len(world.made) <= EXPECTED[method] + replaced
    else:
        assert len(world.made) == EXPECTED[method] + replaced
    assert world.search.describe()["trials"]["created"] == len(world.made)


@pytest.mark.parametrize("method", [method for method in METHODS if method not in ("grid", "pbt")])
@given(order=st.integers(0, 10**6))
@settings(max_examples=examples(10), deadline=None)
def test_a_trials_hyperparameters_depend_on_seed_and_index_alone(method: str, order: int) -> None:
    for create in played(method, 11, order, 0.1).made:
        assert create.hparams == sample(parse_space(SPACE), 11, create.index)


@pytest.mark.parametrize("method", METHODS)
@given(order=st.integers(0, 10**6))
@settings(max_examples=examples(10), deadline=None)
def test_the_description_is_json(method: str, order: int) -> None:
    about = played(method, 1, order, 0.2).search.describe(most=3)
    json.dumps(about, allow_nan=False)
    for bracket in about["brackets"]:
        for rung in bracket["rungs"]:
            assert len(rung["trials"]) <= 3
            values = [t["value"] for t in rung["trials"] if t["value"] is not None]
            assert values == sorted(values)


@pytest.mark.parametrize("method", ["asha", "async_halving", "adaptive_simple", "sync_halving", "random"])
def test_a_space_without_a_valid_point_is_given_up(method: str) -> None:
    world = World(METHODS[method], 1, random.Random(0))
    while open_trials := [i for i, trial in enumerate(world.trials) if trial.open]:
        world.close(open_trials[0], Exit.INVALID_HP)
    assert len(world.made) == 11 * EXPECTED.get(method, len(world.made) // 11)
