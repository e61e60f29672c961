"""A checkpoint that fails its checks on restore is marked, and its trial goes on from the one before."""

from __future__ import annotations

from typing import Any

from dethpc.domain.facts import Attempt, Checkpoint, Run, Trial
from dethpc.domain.ports import JobState
from dethpc.domain.states import CheckpointState, End, State
from dethpc.engine import events
from dethpc.engine.checkpoints import usable
from dethpc.engine.trials import MAX_DAMAGED
from tests.engine.world import FAILED, FINISHED, World, config

SINGLE = config("single")["searcher"]


def begun(world: World, **searcher: Any) -> Run:
    world.create(searcher={**SINGLE, **searcher})
    (run,) = world.live()
    return run


def trained(world: World, run: Run, *uuids: str) -> None:
    """The run reports steps 1, 2, ... with a checkpoint of that name after each."""
    world.start(run)
    first = world.trial(run).steps_completed + 1
    for steps, uuid in enumerate(uuids, first):
        world.report(run, "metrics", group="training", steps_completed=steps, metrics={"loss": 1.0})
        world.report(run, "checkpoint", uuid=uuid, steps_completed=steps, metadata={}, resources={})


def fails_on(world: World, uuid: str) -> None:
    """The next run finds the checkpoint damaged, and ends by that."""
    (run,) = world.live()
    world.start(run)
    world.report(run, "checkpoint_damaged", uuid=uuid, why=f"checkpoint {uuid}: model is damaged")
    world.end(run, FAILED)


def checkpoint(world: World, uuid: str) -> Checkpoint:
    return next(row for row in world.rows(Checkpoint) if row.uuid == uuid)


def trial(world: World) -> Trial:
    found: Trial = world.rows(Trial)[0]
    return found


def test_a_damaged_checkpoint_is_marked_and_the_next_run_begins_at_the_one_before() -> None:
    world = World()
    run = begun(world)
    trained(world, run, "c1", "c2", "c3")
    world.end(run, None, JobState.NODE_FAIL)
    fails_on(world, "c3")
    marked = checkpoint(world, "c3")
    assert (marked.state, marked.reason) == (CheckpointState.ERROR, "checkpoint c3: model is damaged")
    assert (trial(world).latest_checkpoint, trial(world).steps_completed) == ("c2", 2)
    assert trial(world).reason == "checkpoint c3: model is damaged; the trial goes on from checkpoint c2 (2 steps)"
    assert trial(world).restarts == 0, "the training did nothing wrong"
    assert [a.end for a in world.rows(Attempt)] == [End.NODE_FAIL, End.DAMAGED_CHECKPOINT]
    (again,) = world.live()
    world.start(again)
    first = next(a for a in world.rows(Attempt) if a.run_id == run.id)
    assert first.void_after == 4, "what was trained after c2 is trained again, and must not count twice"
    world.assert_memory_is_a_fold_of_the_rows()


def test_several_damaged_ones_in_a_row_fall_back_further_and_at_last_to_the_beginning() -> None:
    world = World()
    run = begun(world)
    trained(world, run, "c1", "c2")
    world.end(run, None, JobState.NODE_FAIL)
    fails_on(world, "c2")
    assert trial(world).latest_checkpoint == "c1"
    fails_on(world, "c1")
    assert (trial(world).latest_checkpoint, trial(world).steps_completed) == (None, 0)
    assert trial(world).reason.endswith("no earlier one is left, so the trial begins again at 0 steps")
    (run,) = world.live()
    trained(world, run, "c3")
    world.end(run, FINISHED)
    assert (trial(world).state, trial(world).restarts) == (State.COMPLETED, 0)


def test_a_storage_that_keeps_nothing_ends_the_trial() -> None:
    world = World()
    for count in range(MAX_DAMAGED):
        (run,) = world.live() or [begun(world)]
        trained(world, run, f"c{count}")
        world.end(run, None, JobState.TIMEOUT)
        fails_on(world, f"c{count}")
    assert trial(world).state is State.ERROR
    assert trial(world).reason.startswith("12 of its checkpoints are damaged: their storage does not keep them")


def test_what_a_later_attempt_left_behind_is_not_gone_on_from() -> None:
    world = World()
    run = begun(world)
    trained(world, run, "c1", "c2")
    world.end(run, None, JobState.NODE_FAIL)
    (run,) = world.live()
    world.do(events.Submitted(run.id, "j", world.now()))
    world.do(events.AttemptStarted(run.id, 0, ["n0"], "c1", 1, world.now()))  # c2 was not seen there
    world.report(run, "checkpoint", uuid="c3", steps_completed=2, metadata={}, resources={})
    world.end(run, None, JobState.NODE_FAIL)
    known = world.state.checkpoints[1].values()
    assert [c.uuid for c in usable(world.state, trial(world), known)] == ["c3", "c1"]
    fails_on(world, "c3")
    assert trial(world).latest_checkpoint == "c1"


def test_training_that_goes_on_all_the_same_answers_for_its_own_failures() -> None:
    world = World()
    run = begun(world)
    trained(world, run, "c1", "c2")
    world.end(run, None, JobState.NODE_FAIL)
    (run,) = world.live()
    world.start(run)
    world.report(run, "checkpoint_damaged", uuid="c2", why="damaged")
    world.report(run, "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})
    world.end(run, FAILED)
    assert trial(world).restarts == 1
    assert trial(world).reason == "restarted: ValueError: bad"


def test_a_checkpoint_that_the_attempt_did_not_go_on_from_is_marked_alone() -> None:
    world = World()
    run = begun(world)
    trained(world, run, "c1", "c2")
    world.report(run, "checkpoint_damaged", uuid="c1", why="damaged")
    assert checkpoint(world, "c1").state is CheckpointState.ERROR
    world.end(run, FAILED)
    assert (trial(world).latest_checkpoint, trial(world).restarts) == ("c2", 1)


def test_a_trial_whose_source_is_damaged_ends_at_once_and_says_so() -> None:
    world = World()
    run = begun(world, source_checkpoint_uuid="theirs")
    world.do(events.Submitted(run.id, "j", world.now()))
    world.do(events.AttemptStarted(run.id, 0, ["n0"], "theirs", 0, world.now()))
    world.report(run, "checkpoint_damaged", uuid="theirs", why="checkpoint theirs: model is damaged")
    world.end(run, FAILED)
    ended = trial(world)
    assert (ended.state, ended.restarts, world.live()) == (State.ERROR, 0, [])
    assert ended.reason.startswith("checkpoint theirs: model is damaged; this is where the trial was to begin")


def test_a_source_of_a_trial_that_is_over_is_marked_and_one_of_a_trial_that_trains_is_gone_on_from_no_more() -> None:
    world = World()
    parent = begun(world)
    trained(world, parent, "c1", "c2")
    found = checkpoint(world, "c2")
    world.do(events.SourceDamaged(found, "checkpoint c2: model is damaged", world.now()))
    assert checkpoint(world, "c2").state is CheckpointState.ERROR
    assert trial(world).latest_checkpoint == "c1"
    world.do(events.KillTrial(1, world.now()))
    world.end(parent, None, JobState.CANCELLED)
    ended = trial(world)
    assert ended.state.terminal
    world.do(events.SourceDamaged(checkpoint(world, "c1"), "checkpoint c1: model is damaged", world.now()))
    marked = checkpoint(world, "c1")
    assert (marked.state, marked.reason) == (CheckpointState.ERROR, "checkpoint c1: model is damaged")
    assert trial(world) == ended, "what it was trained from is as it was"
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_copy_of_a_trial_whose_checkpoint_is_damaged_begins_at_the_one_before_and_at_last_with_new_weights() -> None:
    world = World()
    pbt = {
        "name": "pbt",
        "metric": "loss",
        "population_size": 2,
        "num_rounds": 2,
        "length_per_round": {"batches": 2},
        "replace_function": {"truncate_fraction": 0.5},
        "explore_function": {"resample_probability": 0.0, "perturb_factor": 0.2},
    }
    world.create(searcher=pbt)
    for number, run in enumerate(world.live()):
        trained(world, run, f"{number}a", f"{number}b")
        world.report(run, "metrics", group="validation", steps_completed=2, metrics={"loss": float(number)})
        world.end(run, FINISHED)

    def copy() -> Trial:
        return next(t for t in world.rows(Trial) if t.search.get("parent") == 0)

    def fails() -> None:
        (run,) = [run for run in world.live() if world.trial(run).id == copy().id]
        uuid = copy().source_checkpoint
        world.do(events.Submitted(run.id, "j", world.now()))
        world.do(events.AttemptStarted(run.id, 0, ["n0"], uuid, 0, world.now()))
        if uuid is not None:
            others = [c for c in world.rows(Checkpoint) if c.trial_id == 1]
            world.do(events.SourceDamaged(checkpoint(world, uuid), "model is damaged", world.now(), others))
            world.report(run, "checkpoint_damaged", uuid=uuid, why=f"checkpoint {uuid}: model is damaged")
            world.end(run, FAILED)

    assert copy().source_checkpoint == "0b"
    fails()
    assert (copy().source_checkpoint, copy().restarts) == ("0a", 0)
    assert copy().reason.endswith("begins at checkpoint 0a, which the trial that it copies had before")
    fails()
    assert (copy().source_checkpoint, copy().state.terminal) == (None, False)
    assert copy().reason.endswith("no earlier one of the trial that it copies is left, so it begins with new weights")
    assert {c.uuid for c in world.rows(Checkpoint) if c.state is CheckpointState.ERROR} == {"0a", "0b"}
    world.assert_memory_is_a_fold_of_the_rows()


def test_another_trials_checkpoint_is_not_marked_by_whoever_names_it() -> None:
    world = World()
    run = begun(world)
    trained(world, run, "c1")
    world.create(searcher=SINGLE)
    other = next(each for each in world.live() if each.experiment_id == 2)
    world.start(other)
    world.report(other, "checkpoint_damaged", uuid="c1", why="I say so")
    assert checkpoint(world, "c1").state is CheckpointState.COMPLETED
    world.end(other, FAILED)
    assert world.rows(Trial)[1].restarts == 1
