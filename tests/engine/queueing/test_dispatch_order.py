"""The order that is shown is the order that is served."""

from __future__ import annotations

import random

import pytest

from dethpc.domain.facts import Run
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.engine.queueing.dispatch_order import ahead_of, dispatch_order, order
from dethpc.engine.queueing.pools import Kind, Rules
from tests.engine.queueing.test_queue import create
from tests.engine.world import FINISHED, World


def shown(world: World, pool: str = "main") -> list[int]:
    numbers = {experiment.id: id for id, experiment in world.state.experiments.items()}
    return [numbers[job.id] for job in order(world.state, pool, world.clock)]


def submitted(world: World) -> list[int]:
    return [run.experiment_id for run in world.live() if run.state is RunState.SUBMITTING]


def test_a_job_that_was_served_less_is_shown_and_submitted_first_in_a_pool_that_shares() -> None:
    world = World()
    world.state.rules = {"main": Rules("fair_share", window=1)}
    served, waits = create(world, 20), create(world, 20)
    for _ in range(8):
        run = next(run for run in world.live() if run.experiment_id == served or len(submitted(world)) == 1)
        world.start(run)
        world.clock += 500 if run.experiment_id == served else 1
        world.end(run, FINISHED)
    order_shown = shown(world)
    assert order_shown == [waits, served]
    assert submitted(world) == [waits]


@pytest.mark.parametrize("kind", ["priority", "fair_share", "fifo"])
@pytest.mark.parametrize("seed", range(5))
def test_jobs_are_shown_in_the_order_of_their_next_turns(kind: Kind, seed: int) -> None:
    world, rng = World(), random.Random(seed)
    world.state.rules = {"main": Rules(kind, window=3)}
    for _ in range(60):
        live = list(world.live())
        running = [run for run in live if run.state is RunState.RUNNING]
        world.clock += rng.uniform(0, 300)
        if rng.random() < 0.2:
            weight = {"weight": float(rng.randint(1, 4))} if kind == "fair_share" else {}
            create(world, 6, slots_per_trial=rng.choice([1, 2, 4]), **weight)
        elif running and rng.random() < 0.5:
            world.end(rng.choice(running), FINISHED)
        elif len(running) < len(live):
            world.start(rng.choice([run for run in live if run.state is not RunState.RUNNING]))
        by_turn = list(dict.fromkeys(dispatch.job.id for dispatch in dispatch_order(world.state, "main", world.clock)))
        assert [job.id for job in order(world.state, "main", world.clock) if job.id in by_turn] == by_turn


@pytest.mark.parametrize("kind", ["priority", "fair_share"])
def test_as_many_runs_as_are_said_to_come_first_are_submitted_first(kind: Kind) -> None:
    world = World()
    world.state.rules = {"main": Rules(kind, window=2)}
    for _ in range(3):
        create(world, 4)
    last = list(world.state.experiments.values())[-1]
    said, before = ahead_of(world.state, last, world.clock), set(world.state.runs)
    assert said or kind == "fair_share"
    world.state.rules = {"main": Rules(kind, window=100)}
    new = [row for row in world.do(events.Schedule(world.clock)) if isinstance(row, Run) and row.id not in before]
    assert [run.experiment_id for run in new].index(last.row.id) == said
