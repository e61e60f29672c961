"""A checkpoint that is whole where it was made, and waits for a storage that is away: listed, and nothing begins there."""

from __future__ import annotations

from dethpc.domain.states import CheckpointState, State
from dethpc.engine import events
from tests.engine.test_damaged_checkpoints import begun, checkpoint, trained, trial
from tests.engine.world import FAILED, FINISHED, World


def waiting(world: World) -> None:
    run = begun(world)
    trained(world, run, "c1")
    told = {"uuid": "c2", "steps_completed": 2, "metadata": {}, "resources": {"model": 5}, "why": "nobody answers"}
    world.report(run, "checkpoint_waiting", **told)


def test_it_is_listed_and_nothing_begins_there() -> None:
    world = World()
    waiting(world)
    row = checkpoint(world, "c2")
    assert (row.state, row.size) == (CheckpointState.ACTIVE, 5) and "nobody answers" in row.reason
    assert trial(world).latest_checkpoint == "c1"


def test_it_counts_once_it_is_in_its_storage() -> None:
    world = World()
    waiting(world)
    (run,) = world.live()
    world.report(run, "checkpoint", uuid="c2", steps_completed=2, metadata={}, resources={"model": 5})
    assert (checkpoint(world, "c2").state, checkpoint(world, "c2").reason) == (CheckpointState.COMPLETED, "")
    assert trial(world).latest_checkpoint == "c2"
    world.report(run, "checkpoint_waiting", uuid="c2", steps_completed=2, metadata={}, resources={}, why="late")
    assert checkpoint(world, "c2").state is CheckpointState.COMPLETED


def test_it_goes_with_the_run_that_has_not_brought_it() -> None:
    world = World()
    waiting(world)
    (run,) = world.live()
    world.end(run, FAILED)
    row = checkpoint(world, "c2")
    assert (row.state, row.size) == (CheckpointState.DELETED, 0) and "never reached" in row.reason
    assert trial(world).latest_checkpoint == "c1" and checkpoint(world, "c1").state is CheckpointState.COMPLETED


def test_a_trial_says_so_itself_where_it_can() -> None:
    world = World()
    waiting(world)
    (run,) = world.live()
    world.report(run, "checkpoint_deleted", uuid="c2", resources={}, why="the job ended")
    assert (
        checkpoint(world, "c2").state is CheckpointState.DELETED and "never reached" in checkpoint(world, "c2").reason
    )


def kept(world: World, finished: bool) -> None:
    waiting(world)
    (run,) = world.live()
    world.report(run, "checkpoint", uuid="c2", steps_completed=2, metadata={}, resources={"model": 5}, spool="/spool")
    if finished:
        world.report(run, "checkpoint_waiting", uuid="c3", steps_completed=3, metadata={}, resources={}, why="away")
    world.end(run, FINISHED if finished else FAILED)


def test_what_is_in_the_spool_outlives_its_run_and_the_next_one_begins_there() -> None:
    world = World()
    kept(world, finished=False)
    row = checkpoint(world, "c2")
    assert row.state is CheckpointState.COMPLETED and row.reason.endswith("was away, in /spool")
    assert trial(world).latest_checkpoint == "c2"
    world.do(events.CheckpointsBrought([row], world.now()))
    assert checkpoint(world, "c2").reason == ""


def test_a_report_without_a_reason_says_that_it_has_arrived() -> None:
    world = World()
    waiting(world)
    (run,) = world.live()
    told = {"uuid": "c2", "steps_completed": 2, "metadata": {}, "resources": {"model": 5}}
    world.report(run, "checkpoint", **told, spool="/spool")
    world.report(run, "checkpoint_waiting", **told, why="")
    assert (checkpoint(world, "c2").state, checkpoint(world, "c2").reason) == (CheckpointState.COMPLETED, "")


def test_a_trial_does_not_finish_in_silence_when_a_checkpoint_is_lost() -> None:
    world = World()
    kept(world, finished=True)
    last = trial(world)
    assert last.state is State.COMPLETED and last.reason.startswith(
        "finished, but 1 of its checkpoints could not be saved"
    )
