"""A checkpoint storage that does not answer is no fault of a trial: it rests, longer and longer, until it can go on from there."""

from __future__ import annotations

from dethpc.domain.facts import Run, Trial
from dethpc.domain.reports import STORAGE_AWAY
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.engine.ends import MAX_LOST
from dethpc.engine.trials import AWAY, MAX_REST, MAX_STALLED
from tests.engine.world import FAILED, FINISHED, World, config

AT_THE_START = {"exit_code": 1, "phase": "storage", "message": "s3://bucket: nobody answers"}


def begun(world: World) -> None:
    """A trial that was lost after a checkpoint, and may restart once."""
    world.create(searcher=config("single")["searcher"], max_restarts=1)
    (run,) = world.live()
    world.start(run)
    world.report(run, "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})
    world.report(run, "checkpoint", uuid="c1", steps_completed=1, metadata={}, resources={"model": 5})


def begun_again(world: World) -> Run:
    """After its rest."""
    world.clock = trial(world).not_before or world.clock
    world.do(events.Tick(world.clock))
    (run,) = world.live()
    world.start(run)
    return run


def trial(world: World) -> Trial:
    found: Trial = world.rows(Trial)[0]
    return found


def test_a_trial_whose_storage_is_away_goes_on_when_it_is_back_however_many_runs_find_it_away() -> None:
    world = World()
    begun(world)
    (run,) = world.live()
    world.end(run, FAILED, rest=10.0)
    assert trial(world).restarts == 1
    rests = []
    for n in range(2 * max(MAX_LOST, MAX_STALLED)):
        run = begun_again(world)
        if n % 2:  # training code finds it so
            world.report(run, "early_exit", reason=f"{STORAGE_AWAY}s3://bucket: nobody answers")
        world.end(run, FAILED if n % 2 else AT_THE_START, rest=10.0)
        found = trial(world)
        assert (found.state, found.restarts, found.latest_checkpoint) == (State.ACTIVE, 1, "c1")
        assert found.reason == f"{AWAY}s3://bucket: nobody answers"
        rests.append((found.not_before or 0.0) - world.clock)
    assert rests[:4] == [10.0, 20.0, 40.0, 80.0] and rests[-1] == MAX_REST
    run = begun_again(world)
    world.report(run, "metrics", group="validation", steps_completed=2, metrics={"loss": 1.0})
    world.end(run, FINISHED)
    assert trial(world).state is State.COMPLETED and not trial(world).reason
    world.assert_memory_is_a_fold_of_the_rows()


def test_training_code_that_goes_on_without_its_storage_and_fails_later_has_failed_by_itself() -> None:
    world = World()
    begun(world)
    (run,) = world.live()
    world.report(run, "early_exit", reason=f"{STORAGE_AWAY}s3://bucket: nobody answers")
    world.report(run, "metrics", group="training", steps_completed=2, metrics={"loss": 1.0})
    world.end(run, FAILED)
    assert trial(world).restarts == 1 and trial(world).reason == f"restarted: {FAILED['message']}"
