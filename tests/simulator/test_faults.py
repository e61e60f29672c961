"""The production engine through everything that goes wrong. A failure prints its seed; ``replay(seed)`` shows it again."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Attempt, Metric, Row, Trial
from dethpc.domain.states import AttemptState, State
from dethpc.engine import ClusterState, events
from dethpc.engine.fold import fold
from dethpc.errors import Refused
from dethpc.searcher.methods import METHODS, build
from dethpc.simulator import Faults, Master, Pace, PowerLaw, Simulation, Site
from dethpc.simulator.memory import MemoryStore

SPACE = {
    "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10, "count": 4},
    "layers": {"type": "int", "minval": 1, "maxval": 8, "count": 2},
    "net": {"optimizer": {"type": "categorical", "vals": ["adam", "sgd"]}},
}
SEARCHES: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "random": {"name": "random", "max_trials": 9, "max_concurrent_trials": 4},
    "grid": {"name": "grid", "max_concurrent_trials": 5},
    "adaptive_asha": {
        "name": "adaptive_asha",
        "max_trials": 20,
        "max_concurrent_trials": 6,
        "max_time": 64,
        "time_metric": "epochs",
        "divisor": 4,
        "max_rungs": 4,
        "mode": "standard",
    },
    "async_halving": {
        "name": "async_halving",
        "max_trials": 15,
        "max_concurrent_trials": 1,
        "max_time": 64,
        "time_metric": "epochs",
        "divisor": 4,
        "num_rungs": 3,
    },
    "sync_halving": {"name": "sync_halving", "num_rungs": 3, "budget": {"batches": 400}, "max_length": {"batches": 64}},
    "adaptive": {"name": "adaptive", "budget": {"batches": 600}, "max_length": {"batches": 64}, "max_rungs": 3},
    "adaptive_simple": {"name": "adaptive_simple", "max_trials": 12, "max_length": {"batches": 64}, "max_rungs": 3},
    "pbt": {
        "name": "pbt",
        "population_size": 5,
        "num_rounds": 4,
        "length_per_round": {"batches": 16},
        "replace_function": {"truncate_fraction": 0.4},
        "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.2},
    },
}
KNOWN = [name for name in SEARCHES if name in METHODS]


def config(search: str, slots: int = 1, max_restarts: int = 1000) -> ExperimentConfig:
    data = {
        "entrypoint": "train",
        "name": search,
        "searcher": {"metric": "loss", "smaller_is_better": True, **SEARCHES[search]},
        "hyperparameters": SPACE,
        "resources": {"slots_per_trial": slots, "resource_pool": "main"},
        "max_restarts": max_restarts,
        "preemption_timeout": 60,
    }
    return ExperimentConfig.from_json(data)


PACE = Pace(startup=20, step=1, stop=5, spread=0.3, length=64, validation_period=2, checkpoint_each=2)
SITE = Site(nodes=3, slots_per_node=4)


class World:
    """A simulation whose every commit is checked."""

    def __init__(self, seed: int, faults: Faults, *, check_fold: bool = True) -> None:
        self.store = MemoryStore()
        self.simulation = Simulation(
            SITE,
            PACE,
            PowerLaw(SPACE, seed),
            seed=seed,
            faults=faults,
            master=Master(store=self.store, build_searcher=build),
        )
        self.check_fold, self.commits = check_fold, 0
        self.finals: list[int] = []
        self.simulation.shell.listeners.append(self.committed)

    def committed(self, rows: Sequence[Row]) -> None:
        self.commits += 1
        if self.check_fold and self.commits % 20 == 0:
            assert_fold(self.simulation.shell.state, self.store)
        for row in rows:
            if isinstance(row, Trial) and row.state.terminal:
                self.finals.append(row.id)
        runs = [run.task_id for run in self.simulation.shell.state.runs.values()]
        assert len(runs) == len(set(runs)), "a trial has two live runs"
        training = [job.trial.id for job in self.simulation.jobs.values() if job.attempts and not job.attempts[-1].over]
        assert len(training) == len(set(training)), "a trial trains twice at once"


def counting(store: MemoryStore, trial_id: int) -> list[Metric]:
    """A trial's metrics that were not voided."""
    void = {(attempt.run_id, attempt.number): attempt.void_after for attempt in store.rows(Attempt)}
    found = [metric for metric in store.rows(Metric) if metric.trial_id == trial_id]
    return [m for m in found if (after := void[m.run_id, m.attempt]) is None or m.seq <= after]


def assert_fold(state: ClusterState, store: MemoryStore) -> None:
    """Memory is what a master that starts now would have."""
    folded = fold(build, store.load())
    for name in ("runs", "trials", "attempts", "checkpoints", "next_experiment_id", "next_trial_id"):
        assert getattr(folded, name) == getattr(state, name), name
    for number, experiment in state.experiments.items():
        other = folded.experiments[number]
        for name in ("row", "trials", "open", "waiting", "live", "notes"):
            assert getattr(other, name) == getattr(experiment, name), name
        assert remembered(other.searcher) == remembered(experiment.searcher)


def remembered(searcher: Any) -> dict[str, Any]:
    """What decisions rest on; not how it is kept, nor progress, which is not recorded."""
    kept = {name: value for name, value in vars(searcher).items() if not name.startswith("_") and name != "brackets"}
    return {**kept, **searcher.describe(), "progress": None}


def faults(seed: int) -> Faults:
    """Other faults for each seed, some of them absent."""
    rng = random.Random(f"which faults:{seed}")

    def some(low: float, high: float) -> float | None:
        return rng.uniform(low, high) if rng.random() < 0.7 else None

    return Faults(
        node_failure=some(300, 3000),
        repair=rng.uniform(10, 300),
        preemption=some(60, 600),
        loss=some(300, 1000),
        requeue=rng.choice([0.0, 0.5, 1.0]),
        crash=rng.choice([0.0, 0.02, 0.1]),
        outage=rng.uniform(0, 60),
        user_error=rng.choice([0.0, 0.2]),
        deaf=rng.choice([0.0, 0.3]),
        nan=rng.choice([0.0, 0.1]),
    )


def replay(seed: int, search: str, fault: Faults | None = None) -> World:
    """One whole search under the faults of ``seed``."""
    world = World(seed, faults(seed) if fault is None else fault)
    world.simulation.create(config(search))
    world.simulation.run()
    return world


def trials(world: World) -> list[Trial]:
    return world.simulation.result(1).trials


@pytest.mark.parametrize("search", KNOWN)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6))
def test_every_search_ends_with_the_same_trials_as_undisturbed(search: str, seed: int) -> None:
    note(f"replay({seed}, {search!r})")
    world = replay(seed, search)
    assert_fold(world.simulation.shell.state, world.store)
    calm = trials(replay(seed, search, Faults()))
    if search != "pbt":  # whom it copies depends on values, and a lost value is another value
        assert [t.hparams for t in trials(world)] == [t.hparams for t in calm]
    assert [t.seed for t in trials(world)] == [t.seed for t in calm]
    assert all(t.state.terminal for t in trials(world))
    assert world.simulation.shell.state.experiments[1].row.state in (State.COMPLETED, State.ERROR)
    assert sorted(world.finals) == sorted(set(world.finals)), "a trial ended twice"


@pytest.mark.parametrize(
    "search", [name for name in ("random", "grid", "async_halving", "sync_halving", "pbt") if name in KNOWN]
)
@pytest.mark.parametrize("seed", range(4))
def test_losing_hardware_and_masters_changes_no_outcome(search: str, seed: int) -> None:
    """Trials end the same way with the same values, where nothing depends on who comes first."""
    rough = Faults(node_failure=900, repair=100, preemption=200, requeue=0.7, crash=0.1, outage=0)
    world, calm = replay(seed, search, rough), replay(seed, search, Faults())
    assert world.simulation.shell.deaths > 0
    outcome = [(t.index, t.state, t.best_validation, t.steps_completed, t.hparams) for t in trials(world)]
    assert outcome == [(t.index, t.state, t.best_validation, t.steps_completed, t.hparams) for t in trials(calm)]


@pytest.mark.parametrize("seed", range(4))
def test_metrics_that_count_have_no_gap_and_no_double(seed: int) -> None:
    world = replay(seed, "random", Faults(node_failure=600, repair=60, preemption=150, requeue=0.5, crash=0.05))
    for trial in trials(world):
        steps = [metric.steps_completed for metric in counting(world.store, trial.id) if metric.group == "validation"]
        assert sorted(steps) == list(range(2, 65, 2)), f"seed {seed}, trial {trial.id}"


@pytest.mark.parametrize("seed", range(4))
def test_two_experiments_under_a_users_hands(seed: int) -> None:
    """Pause, activate and kill at random times, while things fail."""
    rng = random.Random(f"user:{seed}")
    world = World(seed, faults(seed))
    simulation = world.simulation
    numbers = [simulation.create(config(name, slots)) for name, slots in (("random", 2), ("grid", 4))]
    for _ in range(12):
        simulation.run(until=simulation.now + rng.uniform(1, 200))
        number = rng.choice(numbers)
        if simulation.shell.away or simulation.shell.state.experiments[number].row.state.terminal:
            continue
        simulation.wish(events.Pause(number, simulation.now))
        simulation.run(until=simulation.now + rng.uniform(0, 100))
        if not simulation.shell.away and not simulation.shell.state.experiments[number].row.state.terminal:
            simulation.wish(events.Activate(number, simulation.now))
    for number in numbers:
        if not simulation.shell.state.experiments[number].row.state.terminal:
            simulation.wish(events.Activate(number, simulation.now))
    simulation.run()
    assert_fold(simulation.shell.state, world.store)
    assert [simulation.result(n).experiment.state for n in numbers] == [State.COMPLETED] * 2, f"seed {seed}"
    assert not simulation.shell.state.runs
    assert all(attempt.state is AttemptState.ENDED for attempt in world.store.rows(Attempt))


@pytest.mark.parametrize("search", ["single", "random"])
@pytest.mark.parametrize("seed", range(3))
def test_what_was_killed_and_continued_ends_as_if_it_had_not_been(search: str, seed: int) -> None:
    """Kill and continue at random times, while things fail."""
    rng = random.Random(f"continue:{seed}")
    world = World(seed, Faults(node_failure=900, repair=100, preemption=200, requeue=0.7, crash=0.1, outage=0))
    simulation, store = world.simulation, world.store
    number = simulation.create(config(search))
    for _ in range(4):
        simulation.run(until=simulation.now + rng.uniform(1, 300))
        simulation.run(until=simulation.now)
        simulation.wish(events.Kill(number, simulation.now))
        simulation.run()
        row = simulation.shell.state.experiments[number].row
        if row.state is State.COMPLETED:
            break
        past = store.load()
        wish = events.ContinueExperiment(number, ExperimentConfig.from_json(row.config), past, simulation.now)
        while simulation.shell.state.experiments[
            number
        ].row.state.terminal:  # a master that died over it may have done it
            with contextlib.suppress(Refused):
                simulation.wish(wish)
        if not simulation.shell.away:
            assert_fold(simulation.shell.state, store)
    simulation.run()
    assert_fold(simulation.shell.state, store)
    calm = trials(replay(seed, search, Faults()))
    assert [(t.state, t.steps_completed, t.hparams) for t in trials(world)] == [
        (t.state, t.steps_completed, t.hparams) for t in calm
    ]
    for trial in trials(world):
        steps = [metric.steps_completed for metric in counting(store, trial.id) if metric.group == "validation"]
        assert sorted(steps) == list(range(2, 65, 2)), f"seed {seed}, trial {trial.id}"
