"""What has ended leaves memory, and comes back where an event needs it."""

from __future__ import annotations

import sys

import pytest

from dethpc.domain.facts import Experiment, Trial
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import NotFound
from tests.engine.queueing.test_queue import create
from tests.engine.world import FINISHED, World


def ended(world: World) -> int:
    experiment = create(world)
    (run,) = world.live()
    world.start(run)
    world.end(run, FINISHED)
    return experiment


def test_an_experiment_that_has_ended_leaves_memory_whole() -> None:
    world = World()
    id = ended(world)
    world.state.evict_ended()
    state = world.state
    assert not (state.experiments or state.jobs or state.tasks or state.trials or state.attempts)
    assert not (state.checkpoints or state.resting or state.runs or state.ended or state.places.count)
    assert create(world) == id + 1, "its id is not given again"


def test_an_experiment_with_a_live_run_stays() -> None:
    world = World()
    create(world)
    (run,) = world.live()
    world.start(run)
    world.do(events.Kill(run.experiment_id or 0, world.now()))
    world.state.evict_ended()
    assert run.experiment_id in world.state.experiments


def test_what_an_event_is_about_comes_back_for_it() -> None:
    world = World()
    id = ended(world)
    (row,), trials = world.rows(Experiment), world.rows(Trial)
    world.state.evict_ended()
    archive = events.ChangeExperiment(id, ExperimentChanges(archived=True), world.now())
    with pytest.raises(NotFound):
        world.do(archive)
    world.do(events.LoadExperiment(row, (), archive))
    assert world.rows(Experiment)[0].archived
    world.state.evict_ended()
    world.do(events.LoadExperiment(row, trials, events.KillTrial(trials[0].id, world.now())))
    world.state.evict_ended()
    assert not world.state.experiments and world.rows(Trial)[0].state is State.COMPLETED


def test_a_deleted_experiment_does_not_come_back() -> None:
    world = World()
    id = ended(world)
    world.do(events.Delete(id, "gc", world.now()))
    assert world.rows(Experiment)[0].state is State.DELETING
    world.start(next(iter(world.live())))
    world.assert_memory_is_a_fold_of_the_rows()
    world.end(next(iter(world.live())), FINISHED)
    (row,), trials = world.rows(Experiment), world.rows(Trial)
    with pytest.raises(NotFound):
        world.do(events.LoadExperiment(row, trials, events.KillTrial(trials[0].id, world.now())))
    assert not world.state.experiments


def test_rows_that_hold_nothing_hold_the_same() -> None:
    world = World()
    create(world)
    create(world)
    trials, tasks = world.state.trials.values(), world.state.tasks.values()
    held = [*(trial.metadata for trial in trials), *(task.config for task in tasks)]
    assert len(held) >= 4 and len(set(map(id, held))) == 1


def test_a_tasks_only_attempt_takes_the_room_of_one() -> None:
    world = World()
    create(world)
    (run,) = world.live()
    world.start(run)
    attempts = world.state.attempts[run.task_id]
    assert len(attempts) == 1 and sys.getsizeof(attempts) == sys.getsizeof([None])
