"""Searches that would fail without a word: names that never come, and errors that no restart heals."""

from __future__ import annotations

from typing import Any

from dethpc.domain.facts import Experiment, Run
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.insight.waiting import for_first_trial
from tests.engine.world import FAILED, FINISHED, World

METRIC = {"name": "random", "metric": "validation_loss", "max_trials": 2, "max_concurrent_trials": 2}


def validate(world: World, run: Run, steps: int, **metrics: Any) -> None:
    world.report(run, "metrics", group="validation", steps_completed=steps, metrics=metrics)


def test_a_metric_that_is_named_otherwise_is_told_at_the_first_validation_and_at_the_end() -> None:
    world = World()
    experiment = world.create(searcher=METRIC)
    for run in world.live():
        world.start(run)
        validate(world, run, 1, val_loss=0.5, accuracy=0.1)
        told = world.trial(run).warning
        assert (
            "validation_loss, the searcher's metric, is not among the reported validation metrics (accuracy, val_loss)"
            in told
        )
        assert "did you mean 'val_loss'? The search" in told
        validate(world, run, 2, val_loss=0.4)
        assert world.trial(run).warning == told, "it is told once"
    assert world.state.experiments[experiment.id].row.warning == told
    for run in world.live():
        world.end(run, FINISHED)
    (row,) = world.rows(Experiment)
    assert (row.state, row.progress) == (State.COMPLETED, 1.0)
    assert "no trial reported validation_loss" in row.reason and row.warning == told
    world.assert_memory_is_a_fold_of_the_rows()


def test_other_validations_beside_the_one_that_counts_are_not_warned_of() -> None:
    world = World()
    experiment = world.create(searcher=METRIC)
    run = world.live()[0]
    world.start(run)
    validate(world, run, 1, accuracy=0.1)
    assert world.trial(run).warning
    validate(world, run, 1, validation_loss=0.5)
    validate(world, run, 2, accuracy=0.1)
    assert (world.trial(run).warning, world.state.experiments[experiment.id].row.warning) == ("", "")


def test_a_time_metric_that_never_comes_is_told_while_the_metric_counts() -> None:
    world = World()
    world.create(
        searcher={
            **{"name": "async_halving", "metric": "loss", "time_metric": "epochs", "max_time": 16, "num_rungs": 2},
            **{"max_trials": 2, "max_concurrent_trials": 2, "divisor": 4},
        }
    )
    run = world.live()[0]
    world.start(run)
    validate(world, run, 1, epoch=1, loss=0.5)
    told = world.trial(run).warning
    assert (
        "epochs, the searcher's time_metric, is not among the reported validation metrics (epoch, loss); did you mean"
        in told
    )
    assert "cannot stop this trial early" in told
    validate(world, run, 2, epochs=2, loss=0.5)
    assert world.trial(run).warning == ""


def test_a_single_trial_that_reports_nothing_completes_and_says_that_it_has_no_best() -> None:
    world = World()
    world.create(searcher={"name": "single", "metric": "loss"})
    (run,) = world.live()
    world.start(run)
    world.end(run, FINISHED)
    (row,) = world.rows(Experiment)
    assert row.state is State.COMPLETED and "no trial reported loss, the searcher's metric, as a number" in row.reason


# --- errors before the first report

ALL = {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 4}
NAME_ERROR = {**FAILED, "message": "exit code 1: NameError: name 'steps' is not defined"}


def awake(world: World, seconds: float = 5) -> None:
    world.clock += seconds
    world.do(events.Tick(world.clock))
    world.do(events.Schedule(world.clock))


def test_the_same_words_twice_before_the_first_report_are_final() -> None:
    world = World()
    world.create(searcher={"name": "single", "metric": "loss"}, max_restarts=5)
    for _ in range(2):
        (run,) = world.live()
        world.start(run)
        world.end(run, NAME_ERROR)
    (row,) = world.rows(Experiment)
    assert world.live() == [] and row.state is State.ERROR
    assert "NameError: name 'steps' is not defined (failed twice in the same way" in row.reason
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_number_of_restarts_that_the_owner_says_is_used_up() -> None:
    world = World()
    world.create(searcher={"name": "single", "metric": "loss"}, max_restarts=2, original_config="max_restarts: 2\n")
    for _ in range(3):
        world.start(world.live()[0])
        world.end(world.live()[0], NAME_ERROR)
    (row,) = world.rows(Experiment)
    assert row.state is State.ERROR and row.reason.endswith("(after 2 restarts)")


def test_failures_of_before_an_experiment_was_continued_do_not_count() -> None:
    world = World()
    world.create(searcher={"name": "single", "metric": "loss"}, max_restarts=5)
    for starts in (2, 2):
        for _ in range(starts):
            world.start(world.live()[0])
            world.end(world.live()[0], NAME_ERROR)
        (row,) = world.rows(Experiment)
        assert row.state is State.ERROR and "(failed twice in the same way" in row.reason
        world.go_on(row.id)


def test_words_that_differ_in_a_folder_a_node_and_a_number_are_the_same() -> None:
    world = World()
    world.create(searcher={"name": "single", "metric": "loss"}, max_restarts=5)
    for n in range(2):
        (run,) = world.live()
        world.start(run)
        words = f"exit code 1: harness: there is no module 'x' in /local/dethpc-06a9-1.1.{n}-abcd_x{n}y/work (pid {n})"
        world.end(run, {**FAILED, "message": words})
    (row,) = world.rows(Experiment)
    assert world.live() == [] and row.state is State.ERROR
    assert "-abcd_x1y/work (pid 1) (failed twice in the same way" in row.reason, "people read the message itself"


def test_other_words_or_a_report_before_leave_all_restarts() -> None:
    world = World()
    world.create(searcher={"name": "single", "metric": "loss"}, max_restarts=9)
    for n in range(4):  # as a port that is taken, or a file that comes late
        world.start(world.live()[0])
        world.end(world.live()[0], {**FAILED, "message": f"exit code 1: OSError: port {n} is taken"})
    world.start(world.live()[0])
    world.report(world.live()[0], "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})
    for _ in range(4):  # it has trained: what befalls it now may heal
        world.end(world.live()[0], NAME_ERROR)
        world.start(world.live()[0])
    assert world.trial(world.live()[0]).restarts == 8


def test_while_the_first_trial_fails_at_once_the_others_wait_and_go_with_its_first_report() -> None:
    world = World()
    experiment = world.create(searcher={**ALL, "max_trials": 4}, max_restarts=9)
    state = world.state.experiments[experiment.id]
    for run in world.live():
        world.start(run)
    for run in world.live():
        world.end(run, NAME_ERROR, rest=5)
        world.assert_memory_is_a_fold_of_the_rows()
    awake(world)
    (first,) = world.live()
    assert world.trial(first).index == 0, "the others wait"
    why = for_first_trial(state)
    assert why is not None and "NameError" in str(why) and "det experiment activate 1" in str(why)
    world.start(first)
    world.report(first, "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})
    assert len(world.live()) == 4 and for_first_trial(state) is None
    world.assert_memory_is_a_fold_of_the_rows()


def test_others_that_wait_for_the_first_trial_go_when_it_has_ended_is_killed_or_the_owner_says_so() -> None:
    for let in ("end", "kill", "activate"):
        world = World()
        experiment = world.create(searcher=ALL, max_restarts=9)
        for run in world.live():
            world.start(run)
        for run in world.live():
            world.end(run, NAME_ERROR, rest=5)
        assert world.live() == [] and for_first_trial(world.state.experiments[experiment.id]) is not None
        if let == "end":
            awake(world)
            world.start(world.live()[0])
            world.end(world.live()[0], NAME_ERROR)
        elif let == "kill":
            world.do(events.KillTrial(1, world.now()))
            awake(world)
        else:
            world.do(events.Activate(experiment.id, world.now()))
            awake(world)
        assert len(world.live()) == (4 if let == "activate" else 3), let
        world.assert_memory_is_a_fold_of_the_rows()
        if let == "end":
            gone, another = world.state.experiments[experiment.id].trials[0], world.live()[0]
            world.start(another)
            world.report(another, "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})
            assert world.state.experiments[experiment.id].trials[0] is gone, "what has ended is not written again"
        if let == "activate":  # he was told once, and wants them all
            world.start(world.live()[0])
            world.end(world.live()[0], {**NAME_ERROR, "message": "exit code 1: other"}, rest=5)
            assert for_first_trial(world.state.experiments[experiment.id]) is None


def test_a_first_trial_that_fails_while_another_has_trained_holds_nobody() -> None:
    world = World()
    experiment = world.create(searcher=ALL)
    first, second, *_ = world.live()
    world.start(first)
    world.start(second)
    world.report(second, "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})
    world.end(first, NAME_ERROR, rest=5)
    assert for_first_trial(world.state.experiments[experiment.id]) is None
