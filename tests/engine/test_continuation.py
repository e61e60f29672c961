"""An experiment that has ended goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dethpc.domain.attempts.log_policies import EXCLUDE_NODE, LogMatch, Noted
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Run, SearchNote, Trial
from dethpc.domain.states import CheckpointState, State
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import Refused
from tests.engine.world import FAILED, FINISHED, World, config

SINGLE = config("single")["searcher"]


def trained(world: World, run: Run, steps: int = 4, saved: int = 3) -> None:
    world.start(run)
    for done in range(1, steps + 1):
        world.report(run, "metrics", group="training", steps_completed=done, metrics={"loss": 1 / done})
        if done == saved:
            world.report(run, "checkpoint", uuid=f"c-{run.id}", steps_completed=done, metadata={}, resources={})


def ended(world: World, end: Callable[[World, Run], None], **changes: object) -> tuple[Experiment, Run]:
    experiment = world.create(searcher=SINGLE, **changes)
    (run,) = world.live()
    trained(world, run)
    end(world, run)
    if world.live():
        world.end(world.live()[0], None)
    assert world.state.experiments[experiment.id].row.state.terminal
    return experiment, run


def finished(world: World, run: Run) -> None:
    world.end(run, FINISHED)


def killed(world: World, run: Run) -> None:
    world.do(events.Kill(1, world.now()))
    world.end(run, None)


def failed(world: World, run: Run) -> None:
    world.end(run, FAILED)


@pytest.mark.parametrize("end", [finished, killed, failed])
def test_who_activates_what_has_ended_is_told_how_it_goes_on(end: Callable[[World, Run], None]) -> None:
    world = World()
    experiment, _ = ended(world, end, max_restarts=0)
    with pytest.raises(
        Refused, match=rf"only a PAUSED one can be activated\. .*: det experiment continue {experiment.id}$"
    ):
        world.do(events.Activate(experiment.id, world.now()))
    second = world.create(searcher=SINGLE)
    world.start(world.live()[0])
    world.do(events.Kill(second.id, world.now()))
    with pytest.raises(Refused, match="only a PAUSED one can be activated$"):  # it is about to end
        world.do(events.Activate(second.id, world.now()))


@pytest.mark.parametrize("end", [finished, killed, failed])
@pytest.mark.parametrize("left_memory", [False, True])
def test_the_same_trial_goes_on_from_its_latest_checkpoint(
    end: Callable[[World, Run], None], left_memory: bool
) -> None:
    world = World()
    experiment, run = ended(world, end, max_restarts=0)
    if left_memory:
        world.state.evict_ended()
        assert not world.state.experiments
    world.go_on(experiment.id, description="longer")
    world.assert_memory_is_a_fold_of_the_rows()
    row = world.state.experiments[experiment.id].row
    assert (row.state, row.ended_at, row.reason, row.description) == (State.ACTIVE, None, "", "longer")
    (again,) = world.live()
    assert (again.task_id, again.number) == (run.task_id, 2)
    world.start(again)
    assert world.trial(again).steps_completed == 3
    attempts = {attempt.run_id: attempt for attempt in world.rows(Attempt)}
    assert attempts[again.id].resumed_from == f"c-{run.id}"
    assert attempts[run.id].void_after == 4, "what came after the checkpoint is trained again"
    world.assert_memory_is_a_fold_of_the_rows()
    world.end(again, FINISHED)
    (trial,) = world.rows(Trial)
    assert (trial.state, trial.id) == (State.COMPLETED, 1)
    assert world.state.experiments[experiment.id].row.state is State.COMPLETED


def test_what_failed_has_all_its_restarts_again() -> None:
    world = World()

    def twice(world: World, run: Run) -> None:
        world.end(run, FAILED)
        (again,) = world.live()
        trained(world, again)
        world.end(again, FAILED)

    experiment, _ = ended(world, twice)
    assert world.state.trial(1).restarts == 1
    world.go_on(experiment.id)
    assert world.state.trial(1).restarts == 0


def test_nodes_and_labels_of_log_policies_are_forgotten() -> None:
    world = World()

    def excluding(world: World, run: Run) -> None:
        world.end(run, FAILED, matched=[LogMatch("card", "bad", EXCLUDE_NODE, "a bad card", "n1", 1.0)])

    experiment, _ = ended(world, excluding, max_restarts=0)
    assert Noted.of(world.state.trial(1).search).nodes == ("n1",)
    world.go_on(experiment.id)
    assert Noted.of(world.state.trial(1).search) == Noted()


def test_a_deleted_checkpoint_is_passed_over() -> None:
    world = World()
    experiment, run = ended(world, finished)
    (checkpoint,) = world.rows(Checkpoint)
    world.do(events.ChangeCheckpoints([replace(checkpoint, state=CheckpointState.DELETED)], world.now()))
    world.go_on(experiment.id)
    assert world.state.trial(1).latest_checkpoint is None
    world.assert_memory_is_a_fold_of_the_rows()


def test_hyperparameters_that_the_configuration_changes_are_drawn_anew_and_the_others_stay() -> None:
    world = World()
    space = {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}, "width": 8}
    experiment, _ = ended(world, finished, hyperparameters=space)
    before = world.state.trial(1).hparams
    world.go_on(experiment.id, hyperparameters={"width": 16})
    assert world.state.trial(1).hparams == {**before, "width": 16}


def test_what_was_set_since_the_creation_stays_unless_the_configuration_changes_it() -> None:
    world = World()
    experiment, _ = ended(world, finished)
    world.do(events.ChangeExperiment(experiment.id, ExperimentChanges(name="mine", max_slots=3), world.now()))
    world.go_on(experiment.id, resources={"max_slots": 7})
    row = world.state.experiments[experiment.id].row
    assert (row.name, row.max_slots) == ("mine", 7)


def test_what_was_set_since_the_creation_gives_way_to_what_the_configuration_said_at_first() -> None:
    world = World()
    experiment, _ = ended(world, finished, name="first", resources={"max_slots": 3})
    world.do(events.ChangeExperiment(experiment.id, ExperimentChanges(name="mine", max_slots=0), world.now()))
    world.assert_memory_is_a_fold_of_the_rows()
    world.go_on(experiment.id, name="first", resources={"max_slots": 3})
    row = world.state.experiments[experiment.id].row
    assert (row.name, row.max_slots) == ("first", 3)


def test_a_search_goes_on_with_the_trials_that_did_not_complete() -> None:
    world = World()
    experiment = world.create(max_restarts=0)
    first, second = world.live()
    trained(world, first)
    world.end(first, FINISHED)
    world.do(events.Kill(experiment.id, world.now()))
    for run in world.live():
        world.end(run, None)
    assert [trial.state for trial in world.rows(Trial)] == [State.COMPLETED, State.CANCELED, State.CANCELED]
    world.state.evict_ended()
    world.go_on(experiment.id)
    world.assert_memory_is_a_fold_of_the_rows()
    assert [trial.state for trial in world.rows(Trial)] == [State.COMPLETED, State.ACTIVE, State.ACTIVE]
    while runs := world.live():
        trained(world, runs[0])
        world.end(runs[0], FINISHED)
        world.assert_memory_is_a_fold_of_the_rows()
    assert [trial.state for trial in world.rows(Trial)] == [State.COMPLETED] * 4
    assert world.state.experiments[experiment.id].row.progress == 1.0
    with pytest.raises(Refused, match="experiment has been completed, cannot continue this experiment"):
        world.go_on(experiment.id)


def test_a_search_that_is_refused_has_heard_nothing_twice() -> None:
    pbt = {
        "population_size": 2,
        "num_rounds": 2,
        "length_per_round": {"batches": 2},
        "replace_function": {"truncate_fraction": 0.5},
        "explore_function": {"resample_probability": 0.5, "perturb_factor": 0.2},
    }
    world = World()
    experiment = world.create(searcher={**config("pbt")["searcher"], **pbt}, max_restarts=0)
    while runs := world.live():
        world.start(runs[0])
        steps = world.trial(runs[0]).steps_completed + 2
        world.report(runs[0], "metrics", group="validation", steps_completed=steps, metrics={"loss": 1.0})
        world.report(runs[0], "checkpoint", uuid=f"c-{runs[0].id}", steps_completed=steps, resources={})
        world.end(runs[0], FINISHED)
    assert world.state.experiments[experiment.id].row.state is State.COMPLETED and world.rows(SearchNote)
    with pytest.raises(Refused, match="Unsupported searcher type"):
        world.go_on(experiment.id)
    world.assert_memory_is_a_fold_of_the_rows()


def test_what_cannot_go_on_is_refused_with_the_reason() -> None:
    world = World()
    experiment = world.create(searcher=SINGLE)
    with pytest.raises(Refused, match="in non terminal state 'ACTIVE', try again later"):
        world.go_on(experiment.id)
    search = world.create(searcher=config("adaptive_asha", max_time=4, time_metric="batches")["searcher"])
    world.do(events.Kill(search.id, world.now()))
    for run in [run for run in world.live() if run.experiment_id == search.id]:
        world.end(run, None)
    with pytest.raises(Refused, match="provided: 'adaptive_asha' .*: det experiment fork 2, "):
        world.go_on(search.id)


def test_one_that_has_not_ended_is_not_deleted_and_has_the_state_of_lists() -> None:
    world = World()
    experiment = world.create()
    world.start(world.live()[0])
    with pytest.raises(Refused, match=f"is RUNNING; end it .*: det experiment kill {experiment.id}$"):
        world.do(events.Delete(experiment.id, "gc", world.now()))
    world.do(events.Pause(experiment.id, world.now()))
    with pytest.raises(Refused, match="is PAUSED; "):
        world.do(events.Delete(experiment.id, "gc", world.now()))


def test_one_whose_jobs_are_ending_is_not_deleted_and_nobody_is_told_to_kill_it_again() -> None:
    world = World()
    experiment = world.create()
    world.start(world.live()[0])
    world.do(events.Kill(experiment.id, world.now()))
    with pytest.raises(Refused, match="STOPPING_KILLED: delete it once its jobs have ended"):
        world.do(events.Delete(experiment.id, "gc", world.now()))


@pytest.mark.parametrize("left_memory", [False, True])
def test_what_could_not_be_deleted_whole_does_not_go_on(left_memory: bool) -> None:
    world = World()
    experiment, _ = ended(world, finished)
    world.do(events.Delete(experiment.id, "gc", world.now()))
    (run,) = world.live()
    world.end(run, FAILED)
    assert world.state.experiments[experiment.id].row.state is State.DELETE_FAILED
    assert world.state.experiments[experiment.id].row.reason.endswith("or at once: det experiment delete 1")
    if left_memory:
        world.state.evict_ended()
    with pytest.raises(Refused, match="DELETE_FAILED.*delete it again"):
        world.go_on(experiment.id)


def test_the_time_between_an_end_and_a_continuation_is_no_part_of_the_duration() -> None:
    world = World()
    experiment, run = ended(world, failed, max_restarts=0)
    before = [row.duration(world.clock) for row in (*world.rows(Experiment), *world.rows(Trial))]
    world.clock += 10_000
    world.go_on(experiment.id)
    again = [row.duration(world.clock) for row in (*world.rows(Experiment), *world.rows(Trial))]
    assert again == before
    world.start(world.live()[0])
    world.clock += 100
    world.end(world.live()[0], FINISHED)
    for row, seconds in zip((*world.rows(Experiment), *world.rows(Trial)), before):
        assert seconds + 100 <= row.duration(world.clock) < seconds + 200 and row.ended_at == world.clock


def test_a_trial_that_had_not_started_when_it_ended_has_the_duration_since_its_start() -> None:
    world = World()
    experiment = world.create(searcher=SINGLE)
    world.do(events.Kill(experiment.id, world.now()))
    if world.live():
        world.end(world.live()[0], None)
    world.clock += 10_000
    world.go_on(experiment.id)
    (run,) = world.live()
    world.start(run)
    assert world.trial(run).duration(world.clock + 5) == 5
