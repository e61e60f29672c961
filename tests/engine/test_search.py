"""Searches from end to end through the engine: trials stopped, waiting, promoted, copied and steered from outside."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.domain.facts import Run, SearchNote, Trial
from dethpc.domain.ids import task_id
from dethpc.domain.ports import JobState
from dethpc.domain.states import Intent, State
from dethpc.engine import events
from dethpc.errors import Refused
from tests.engine.world import FINISHED, STOPPED, World, config
from tests.example_counts import examples

ASHA = {"max_trials": 20, "max_concurrent_trials": 4, "time_metric": "batches", "max_time": 64}
SIMPLE = {"max_trials": 8, "max_rungs": 2, "divisor": 4, "mode": "aggressive", "max_length": {"batches": 8}}
PBT = {
    "population_size": 4,
    "num_rounds": 3,
    "length_per_round": {"batches": 5},
    "replace_function": {"truncate_fraction": 0.25},
    "explore_function": {"resample_probability": 0.0, "perturb_factor": 0.2},
}
Loss = Callable[[Trial, int], float]


def search(world: World, name: str, **settings: Any) -> int:
    return world.create(searcher=config(name, **settings)["searcher"]).id


def validate(world: World, run: Run, steps: int, loss: Any) -> None:
    world.report(run, "metrics", group="validation", steps_completed=steps, metrics={"loss": loss})


def train(world: World, run: Run, loss: Loss, every: int = 1) -> None:
    """A run as user code makes it: validates, checkpoints when asked to stop or at the end of the length it knows of."""
    world.start(run)
    trial = world.trial(run)
    goal = int(max(trial.search["lengths"]))
    steps = trial.steps_completed
    while steps < goal and world.state.runs[run.id].intent is Intent.GO:
        steps += every
        validate(world, run, steps, loss(trial, steps))
    world.report(run, "checkpoint", uuid=f"c{run.id}", steps_completed=steps, metadata={}, resources={})
    world.end(run, FINISHED if steps >= goal else STOPPED)


def run_all(world: World, loss: Loss, every: int = 1) -> None:
    for _ in range(2000):
        runs = list(world.live())
        if not runs:
            return
        train(world, runs[0], loss, every)
    raise AssertionError("the search does not end")


def by_index(trial: Trial, steps: int) -> float:
    return trial.index + 1 / (1 + steps)


def trials(world: World, experiment: int) -> list[Trial]:
    return world.state.experiments[experiment].trials


def state(world: World, experiment: int) -> State:
    return world.state.experiments[experiment].row.state


# --- stopping


def test_a_search_with_halving_makes_the_trials_asked_for_and_trains_the_best_to_the_end() -> None:
    world = World()
    experiment = search(world, "adaptive_asha", **ASHA)
    run_all(world, by_index)
    assert state(world, experiment) is State.COMPLETED
    assert len(trials(world, experiment)) == 20
    longest = max(trials(world, experiment), key=lambda trial: trial.steps_completed)
    assert longest.steps_completed == 64 and longest.index == 0
    assert sum(trial.steps_completed for trial in trials(world, experiment)) < 20 * 64 / 2
    assert world.state.experiments[experiment].row.reason == ""
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_search_whose_trials_all_end_before_the_full_length_says_so() -> None:
    world = World()
    experiment = search(world, "adaptive_asha", **{**ASHA, "max_trials": 4})
    while runs := list(world.live()):
        world.start(runs[0])
        for steps in range(1, 41):
            validate(world, runs[0], steps, by_index(world.trial(runs[0]), steps))
        world.end(runs[0], FINISHED)
    row = world.state.experiments[experiment].row
    assert row.state is State.COMPLETED and "no trial reported batches 64, up to which" in row.reason


@pytest.mark.parametrize("method", ["adaptive_simple", "pbt"])
def test_a_search_that_is_killed_is_no_further_than_it_was(method: str) -> None:
    world = World()
    experiment = search(world, method, **{"adaptive_simple": SIMPLE, "pbt": PBT}[method])
    for run in world.live():
        world.start(run)
        validate(world, run, 2, 1.0)
    progress = world.state.experiments[experiment].row.progress
    world.do(events.Kill(experiment, world.now()))
    for run in world.live():
        world.end(run, STOPPED)
    assert world.state.experiments[experiment].row.progress == pytest.approx(progress, abs=0.01) and progress < 0.9


def test_a_search_without_a_unit_says_that_no_trial_completed_an_operation() -> None:
    world = World()
    experiment = search(world, "adaptive_asha", max_trials=2, max_concurrent_trials=2, max_length=64)
    while runs := list(world.live()):
        world.start(runs[0])
        validate(world, runs[0], 64, 1.0)
        world.end(runs[0], FINISHED)
    reason = world.state.experiments[experiment].row.reason
    assert "no trial completed an operation of length 64" in reason and "searcher.operations()" in reason


def test_a_trial_beyond_the_cut_off_is_stopped_by_the_very_report_and_later_reports_change_nothing() -> None:
    world = World()
    experiment = search(world, "async_halving", num_rungs=2, **{**ASHA, "max_concurrent_trials": 2})
    first, second = world.live()
    world.start(first)
    world.start(second)
    validate(world, first, 16, 0.25)
    assert world.trial(first).state is State.ACTIVE
    validate(world, second, 16, 0.75)
    assert world.trial(second).state is State.STOPPING_COMPLETED
    assert world.state.runs[second.id].intent is Intent.STOP
    why = world.trial(second).reason
    assert "rung 0 (batches 16)" in why and "loss 0.75" in why and "cut-off 0.25" in why
    before = len(world.rows(SearchNote))
    for steps in (17, 18, 64):
        validate(world, second, steps, 0.0)
    assert len(trials(world, experiment)) == 2
    assert len(world.rows(SearchNote)) == before
    world.end(second, STOPPED)
    assert trials(world, experiment)[1].state is State.COMPLETED
    assert len(trials(world, experiment)) == 3, "its place is taken"


def test_reasons_speak_of_the_metric_in_its_own_sign() -> None:
    world = World()
    search(world, "async_halving", num_rungs=2, smaller_is_better=False, **ASHA)
    first, second = world.live()[:2]
    for run, value in ((first, 0.9), (second, 0.5)):
        world.start(run)
        validate(world, run, 16, value)
    assert "loss 0.5" in world.trial(second).reason and "cut-off 0.9" in world.trial(second).reason


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", None, "high"])
def test_a_value_that_is_none_stops_its_trial_and_hurts_no_other(value: Any) -> None:
    world = World()
    search(world, "async_halving", num_rungs=2, **ASHA)
    bad, good = world.live()[:2]
    world.start(bad)
    validate(world, bad, 16, value)
    assert world.trial(bad).state is State.STOPPING_COMPLETED
    assert "no usable loss" in world.trial(bad).reason
    world.start(good)
    validate(world, good, 16, 1e9)
    assert world.trial(good).state is State.ACTIVE
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_report_without_the_searchers_time_is_not_compared() -> None:
    world = World()
    search(world, "async_halving", num_rungs=2, **{**ASHA, "time_metric": "epochs"})
    run = world.live()[0]
    world.start(run)
    validate(world, run, 1000, 0.5)
    assert world.rows(SearchNote) == []
    world.report(run, "metrics", group="validation", steps_completed=1001, metrics={"loss": 0.5, "epochs": 16})
    assert len(world.rows(SearchNote)) == 1


def test_a_trial_that_never_reported_the_metric_says_so() -> None:
    world = World()
    experiment = search(world, "random", max_trials=1)
    (run,) = world.live()
    world.start(run)
    world.end(run, FINISHED)
    assert "without reporting loss" in trials(world, experiment)[0].reason


def test_hyperparameters_found_invalid_are_replaced_and_leave_no_trace_in_the_rungs() -> None:
    world = World()
    experiment = search(world, "async_halving", num_rungs=2, **ASHA)
    (bad, *_) = world.live()
    world.start(bad)
    validate(world, bad, 16, 0.0)
    world.report(bad, "early_exit", reason="EXITED_REASON_INVALID_HP")
    world.end(bad, FINISHED)
    rung = world.state.experiments[experiment].searcher.describe()["brackets"][0]["rungs"][0]
    assert rung["entered"] == 0 and rung["trials"] == []
    run_all(world, by_index)
    assert len(trials(world, experiment)) == 21


# --- waiting and promotion


def test_a_trial_that_reached_its_length_waits_without_slots_and_goes_on_from_its_checkpoint() -> None:
    world = World()
    experiment = search(world, "adaptive_simple", **SIMPLE)
    runs = world.live()
    assert len(runs) == 8
    assert trials(world, experiment)[0].search["lengths"] == [2]
    for run in runs[:6]:
        train(world, run, by_index)
    waiting = [trial for trial in trials(world, experiment) if trial.search.get("waits")]
    assert [trial.index for trial in waiting] == [0, 1]
    assert all("waits at rung 0 (batches 2)" in trial.reason for trial in waiting)
    assert {run.task_id for run in world.live()}.isdisjoint(task_id(trial.experiment_id, trial.id) for trial in waiting)
    for run in runs[6:]:
        train(world, run, by_index)
    again = world.live()
    assert [world.trial(run).index for run in again] == [0, 1]
    assert world.trial(again[0]).search["lengths"] == [2, 8]
    world.start(again[0])
    assert world.state.attempt(again[0].id, 0).resumed_from == f"c{runs[0].id}"  # type: ignore[union-attr]
    validate(world, again[0], 8, 0.1)
    world.end(again[0], STOPPED)
    run_all(world, by_index)
    assert state(world, experiment) is State.COMPLETED
    assert sum(trial.steps_completed for trial in trials(world, experiment)) == 8 * 2 + 2 * 6
    world.assert_memory_is_a_fold_of_the_rows()


def test_pausing_and_activating_the_experiment_does_not_wake_who_waits() -> None:
    world = World()
    experiment = search(world, "adaptive_simple", **SIMPLE)
    first = world.live()[0]
    train(world, first, by_index)
    world.do(events.Pause(experiment, world.now()))
    for run in world.live():
        world.end(run, None, JobState.CANCELLED)
    world.do(events.Activate(experiment, world.now()))
    assert first.task_id not in {run.task_id for run in world.live()}
    assert len(world.live()) == 7
    run_all(world, by_index)
    assert state(world, experiment) is State.COMPLETED


def test_a_trial_promoted_while_it_trains_may_end_its_run_and_is_not_over() -> None:
    world = World()
    experiment = search(world, "adaptive_simple", **SIMPLE)
    runs = world.live()
    for run in runs[:7]:
        train(world, run, lambda trial, steps: 10.0 - trial.index)
    last = runs[7]
    world.start(last)
    validate(world, last, 2, 0.0)
    assert world.state.runs[last.id].intent is Intent.GO, "it need not stop"
    assert world.trial(last).search["lengths"] == [2, 8]
    world.report(last, "checkpoint", uuid="c", steps_completed=2, metadata={}, resources={})
    world.end(last, FINISHED)
    again = next(run for run in world.live() if run.task_id == last.task_id)
    world.start(again)
    world.end(again, FINISHED)
    assert trials(world, experiment)[7].state is State.COMPLETED, "it knew of its length and ended by itself"
    run_all(world, by_index)
    assert state(world, experiment) is State.COMPLETED


def test_an_experiment_of_which_only_waiting_trials_are_left_is_paused_with_the_one_that_was_cancelled() -> None:
    world = World()
    experiment = search(world, "adaptive_simple", **SIMPLE)
    runs = world.live()
    for run in runs[:7]:
        train(world, run, by_index)
    world.start(runs[7])
    world.end(runs[7], None, JobState.CANCELLED)
    left = list(world.live())
    for run in left:
        train(world, run, by_index)
    assert state(world, experiment) is State.PAUSED
    world.do(events.Activate(experiment, world.now()))
    run_all(world, by_index)
    assert state(world, experiment) is State.COMPLETED


# --- population


def test_copies_begin_with_their_parents_checkpoint_and_the_worst_are_closed() -> None:
    world = World()
    experiment = search(world, "pbt", **PBT)
    for run in world.live():
        train(world, run, by_index)
    copy = trials(world, experiment)[4]
    assert copy.source_checkpoint == trials(world, experiment)[0].latest_checkpoint == "c1.1.1"
    assert copy.hparams["lr"] in (
        pytest.approx(trials(world, experiment)[0].hparams["lr"] * 0.8),
        pytest.approx(trials(world, experiment)[0].hparams["lr"] * 1.2),
        pytest.approx(0.1),
        pytest.approx(0.001),
    )
    worst = trials(world, experiment)[3]
    assert worst.state is State.COMPLETED and "among the worst 1 of 4" in worst.reason and "loss 3." in worst.reason
    run_all(world, by_index)
    assert state(world, experiment) is State.COMPLETED
    assert len(trials(world, experiment)) == 6
    assert trials(world, experiment)[0].steps_completed == 15
    assert copy.index == 4 and trials(world, experiment)[4].steps_completed in (5, 10)
    world.assert_memory_is_a_fold_of_the_rows()


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["adaptive_asha", "adaptive_simple", "pbt"]))
@pytest.mark.slow
def test_every_search_ends_whatever_the_order(seed: int, method: str) -> None:
    world, rng = World(), random.Random(seed)
    experiment = search(world, method, **{"adaptive_asha": ASHA, "adaptive_simple": SIMPLE, "pbt": PBT}[method])
    for _ in range(500):
        runs = world.live()
        if not runs:
            break
        train(world, rng.choice(runs), lambda trial, steps: rng.random(), every=rng.choice([1, 3, 100]))
        if rng.random() < 0.1:
            world.assert_memory_is_a_fold_of_the_rows()
    assert state(world, experiment) is State.COMPLETED
    assert len(trials(world, experiment)) == {"adaptive_asha": 20, "adaptive_simple": 8, "pbt": 6}[method]


# --- from outside


def test_a_search_method_from_outside_answers_events_with_operations() -> None:
    world = World()
    experiment = search(world, "custom")
    searcher: Any = world.state.experiments[experiment].searcher

    def operate(event: int, *operations: dict[str, Any]) -> None:
        world.do(events.Operate(experiment, list(operations), event, world.now()))

    assert searcher.events() == [{"id": 1, "initialOperations": {"placeholder": 1}}]
    create = {"createTrial": {"requestId": "a" * 36, "hyperparams": {"lr": 0.1}}}
    operate(1, create, {"trialOperation": {"validateAfter": {"requestId": "a" * 36, "length": "3"}}})
    operate(1, create)  # said twice, done once
    assert len(trials(world, experiment)) == 1 and trials(world, experiment)[0].request_id == "a" * 36
    assert [list(event)[1] for event in searcher.events()] == ["trialCreated"]
    train(world, world.live()[0], by_index)
    reported = searcher.events()[-1]["validationCompleted"]
    assert reported["requestId"] == "a" * 36 and reported["validateAfterLength"] == "3"
    assert world.live() == [] and state(world, experiment) is State.ACTIVE
    world.assert_memory_is_a_fold_of_the_rows()
    operate(3, {"trialOperation": {"validateAfter": {"requestId": "a" * 36, "length": "6"}}})
    train(world, world.live()[0], by_index)
    operate(4, {"closeTrial": {"requestId": "a" * 36}})
    assert list(searcher.events()[-1])[1] == "trialClosed" and state(world, experiment) is State.ACTIVE
    operate(5, {"shutDown": {}})
    assert state(world, experiment) is State.COMPLETED
    json.dumps(searcher.describe())


def create_trial(request: str, lr: float = 0.1) -> dict[str, Any]:
    return {"createTrial": {"requestId": request, "hyperparams": {"lr": lr}}}


def validate_after(request: str, length: float) -> dict[str, Any]:
    return {"trialOperation": {"validateAfter": {"requestId": request, "length": str(length)}}}


def close_trial(request: str) -> dict[str, Any]:
    return {"closeTrial": {"requestId": request}}


def kinds(searcher: Any) -> list[str]:
    return [list(event)[1] for event in searcher.events()]


def test_create_validate_and_close_in_one_answer_train_the_trial_before_it_is_closed() -> None:
    world = World()
    experiment = search(world, "custom")
    searcher: Any = world.state.experiments[experiment].searcher
    operations = [create_trial("a"), validate_after("a", 3), close_trial("a"), {"shutDown": {}}]
    world.do(events.Operate(experiment, operations, 1, world.now()))
    assert state(world, experiment) is State.ACTIVE
    world.assert_memory_is_a_fold_of_the_rows()
    train(world, world.live()[0], by_index)
    (trial,) = trials(world, experiment)
    assert (trial.state, trial.steps_completed) == (State.COMPLETED, 3)
    assert trial.reason == "closed by the search method" and state(world, experiment) is State.COMPLETED
    assert kinds(searcher) == ["trialCreated", "validationCompleted", "trialClosed"]


def test_lengths_of_one_answer_are_reached_one_after_another() -> None:
    world = World()
    experiment = search(world, "custom")
    searcher: Any = world.state.experiments[experiment].searcher
    operations = [create_trial("a"), validate_after("a", 2), validate_after("a", 4)]
    world.do(events.Operate(experiment, operations, 1, world.now()))
    train(world, world.live()[0], by_index)
    completed = [event["validationCompleted"]["validateAfterLength"] for event in searcher.events()[1:]]
    assert completed == ["2", "4"] and world.live() == []
    operations = [validate_after("a", 6), validate_after("a", 8), close_trial("a")]
    world.do(events.Operate(experiment, operations, 4, world.now()))
    world.assert_memory_is_a_fold_of_the_rows()
    train(world, world.live()[0], by_index)
    completed = [e["validationCompleted"]["validateAfterLength"] for e in searcher.events() if "trialClosed" not in e]
    (trial,) = trials(world, experiment)
    assert completed == ["6", "8"] and trial.state is State.COMPLETED and trial.search["lengths"] == [2, 4, 6, 8]
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_trial_that_is_closed_with_nothing_to_reach_ends_without_training() -> None:
    world = World()
    experiment = search(world, "custom")
    operations = [create_trial("a"), close_trial("a"), create_trial("b")]
    world.do(events.Operate(experiment, operations, 1, world.now()))
    world.do(events.Operate(experiment, [close_trial("b"), {"shutDown": {}}], 2, world.now()))
    assert [trial.state for trial in trials(world, experiment)] == [State.COMPLETED] * 2 and world.live() == []
    assert state(world, experiment) is State.COMPLETED
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_trial_that_ended_meanwhile_takes_no_more_lengths() -> None:
    world = World()
    experiment = search(world, "custom")
    searcher: Any = world.state.experiments[experiment].searcher
    world.do(events.Operate(experiment, [create_trial("a"), validate_after("a", 3)], 1, world.now()))
    world.do(events.KillTrial(trials(world, experiment)[0].id, world.now()))
    for run in world.live():
        world.end(run, {"exit_code": 137, "phase": "train"})
    (trial,) = trials(world, experiment)
    assert trial.state is State.CANCELED
    world.do(events.Operate(experiment, [validate_after("a", 6), close_trial("a")], 2, world.now()))
    assert trials(world, experiment) == [trial] and kinds(searcher) == ["trialExitedEarly", "trialClosed"]


def test_operations_that_make_no_sense_are_refused() -> None:
    world = World()
    custom, plain = search(world, "custom"), search(world, "random")
    for experiment, operations in (
        (plain, []),
        (custom, [{"dance": {}}]),
        (custom, [{"closeTrial": {"requestId": "nobody"}}]),
        (custom, [{"createTrial": {"requestId": "x"}}]),
        (custom, [create_trial("x"), create_trial("x")]),
        (custom, [create_trial("x"), validate_after("x", 2.5)]),
        (custom, [create_trial("x"), close_trial("x"), validate_after("x", 2)]),
    ):
        with pytest.raises(Refused):
            world.do(events.Operate(experiment, operations, 1, world.now()))
    with pytest.raises(Refused, match="no event 9"):
        world.do(events.Operate(custom, [], 9, world.now()))


def test_a_draw_that_fails_ends_the_experiment_with_the_words_of_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    experiment = search(world, "random", max_trials=6, max_concurrent_trials=2)
    first, second = world.live()

    def fail(*arguments: Any) -> Any:
        raise Refused("searcher.sampler: gp failed to draw trial 3")

    monkeypatch.setattr(world.state.experiments[experiment].searcher, "exited", fail)
    world.start(first)
    world.start(second)
    validate(world, first, 3, 0.5)
    world.end(first, FINISHED)
    row = world.state.experiments[experiment].row
    assert row.state is State.STOPPING_ERROR and "gp failed to draw" in row.reason
    assert world.state.runs[second.id].intent is Intent.STOP
    world.end(second, STOPPED)
    row = world.state.experiments[experiment].row
    assert (row.state, row.reason) == (State.ERROR, "searcher.sampler: gp failed to draw trial 3")
    assert [trial.state for trial in trials(world, experiment)] == [State.COMPLETED, State.CANCELED]


def test_a_copy_of_a_trial_without_a_checkpoint_says_so() -> None:
    world = World()
    experiment = search(world, "pbt", **{**PBT, "num_rounds": 2})
    for run in world.live():
        world.start(run)
        validate(world, run, 5, float(world.trial(run).index))
        world.end(run, FINISHED)
    *_, copy = trials(world, experiment)
    assert copy.search["parent"] == 0 and copy.source_checkpoint is None
    assert copy.reason == "begins with new weights: the trial that it copies left no checkpoint"


@pytest.mark.parametrize(("field", "end"), [("failure", State.ERROR), ("cancel", State.CANCELED)])
def test_a_search_method_that_gives_up_ends_its_experiment_at_once(field: str, end: State) -> None:
    world = World()
    running, empty = search(world, "custom"), search(world, "custom")
    world.do(events.Operate(empty, [{"shutDown": {field: True}}], 1, world.now()))
    assert state(world, empty) is end
    operations = [create_trial("a"), validate_after("a", 3)]
    world.do(events.Operate(running, operations, 1, world.now()))
    (run,) = world.live()
    world.start(run)
    world.do(events.Operate(running, [{"shutDown": {field: True}}], 2, world.now()))
    assert state(world, running).stopping and world.state.runs[run.id].intent is Intent.STOP
    world.end(run, STOPPED)
    assert state(world, running) is end and "search method" in world.state.experiments[running].row.reason
    world.assert_memory_is_a_fold_of_the_rows()
