"""The engine against a scheduler that hypothesis plays: whatever happens, memory is a fold of the rows and the search ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.log_policies import CANCEL_RETRIES, EXCLUDE_NODE, LogMatch, Noted
from dethpc.domain.facts import Attempt, Metric, Run, Trial
from dethpc.domain.ports import JobState
from dethpc.domain.reports import WOULD_FAIL_AGAIN, Report
from dethpc.domain.states import End, Intent, RunState, State
from dethpc.engine import events
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.runs import next_deadline, overdue
from dethpc.errors import Refused, StoreError
from tests.engine.world import FAILED, FINISHED, STOPPED, World, config
from tests.example_counts import examples


def test_a_search_ends_when_every_trial_has_completed() -> None:
    world = World()
    experiment = world.create()
    while runs := world.live():
        assert len(runs) <= 2
        world.start(runs[0])
        world.report(runs[0], "metrics", group="validation", steps_completed=1, metrics={"loss": 0.5})
        world.end(runs[0], FINISHED)
    row = world.state.experiments[experiment.id].row
    assert row.state is State.COMPLETED
    assert len(world.rows(Trial)) == 4
    assert row.progress == 1.0


def test_a_fault_of_the_trial_uses_up_a_restart_and_then_ends_it() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    for _ in range(2):
        (run,) = world.live()
        world.start(run)
        world.end(run, FAILED)
    trial = world.state.experiments[experiment.id].trials[0]
    assert trial.state is State.ERROR
    assert trial.restarts == 1
    assert "ValueError: bad" in trial.reason
    assert "ValueError: bad" in world.state.experiments[experiment.id].row.reason


def matched(action: str, node: str = "n0") -> LogMatch:
    return LogMatch("card", "bad", action, "a bad card", node, 1.0)


def test_a_trial_whose_log_speaks_against_it_does_not_start_again_after_its_failure() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"], max_restarts=5)
    (run,) = world.live()
    world.start(run)
    world.end(run, FAILED, matched=[matched(CANCEL_RETRIES)])
    (trial,) = world.rows(Trial)
    assert (trial.state, trial.restarts, Noted.of(trial.search).name) == (State.ERROR, 0, "card")
    words = 'trial failed and matched logs to a don\'t retry policy: (log "a bad card" matched regex bad)'
    assert trial.reason == f"ValueError: bad ({words})"


@pytest.mark.parametrize("record", [JobState.PREEMPTED, JobState.NODE_FAIL])
def test_what_is_no_failure_of_the_trials_starts_again_whatever_its_log_says(record: JobState) -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.end(run, None, record, matched=[matched(CANCEL_RETRIES)])
    (again,) = world.live()
    assert again.number == 2 and world.trial(again).state is State.ACTIVE


def test_a_trial_remembers_which_nodes_its_log_excludes_and_may_fail_alike_on_another() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"], max_restarts=5)
    for number in range(4):  # the same words before any report: elsewhere they may not come
        (run,) = world.live()
        world.start(run, f"n{number}")
        world.end(run, FAILED, matched=[matched(EXCLUDE_NODE, f"n{number}")])
    trial = world.trial(world.live()[0])
    assert (trial.restarts, Noted.of(trial.search)) == (4, Noted("card", ("n0", "n1", "n2", "n3")))
    world.assert_memory_is_a_fold_of_the_rows()
    (run,) = world.live()
    world.start(run)
    world.do(events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, world.now()))
    (trial,) = world.rows(Trial)
    assert trial.state is State.COMPLETED and Noted.of(trial.search).name == "card"


def test_what_ended_while_nobody_looked_ended_then_and_what_follows_begins_now() -> None:
    world = World()
    world.state.rules = {"main": Rules("fair_share")}
    experiment = world.create(searcher=config("random", max_trials=2, max_concurrent_trials=1)["searcher"])
    for number in range(2):
        (run,) = world.live()
        begun = world.now()
        world.do(events.AttemptStarted(run.id, 0, ["n0"], None, 0, begun))
        world.clock += 90
        world.end(run, {**FINISHED, "at": begun + 14})
        (row,) = [row for row in world.rows(Run) if row.id == run.id]
        (attempt,) = [row for row in world.rows(Attempt) if row.run_id == run.id]
        trial = world.state.experiments[experiment.id].trials[number]
        assert {row.ended_at for row in (row, attempt, trial)} == {begun + 14}
        if not number:
            assert all(row.created_at == world.clock for row in world.live()), "the next is wanted now"
    job = world.state.experiments[experiment.id]
    assert (job.row.state, job.row.ended_at) == (State.COMPLETED, begun + 14)
    assert job.row.served == 28, "its share is what it used"
    world.assert_memory_is_a_fold_of_the_rows()


def test_an_experiment_ends_with_its_last_trial_whichever_is_noticed_last() -> None:
    world = World()
    experiment = world.create(searcher=config("random", max_trials=2)["searcher"])
    runs = world.live()
    for run in runs:
        world.start(run)
    last = world.clock + 20
    for run, at in zip(runs, (last, last - 5), strict=True):
        world.clock += 90
        world.end(run, {**FINISHED, "at": at})
    assert world.state.experiments[experiment.id].row.ended_at == last


def test_a_training_that_says_that_it_would_fail_again_is_not_tried_again() -> None:
    """However much it trained before: a wrong name of the metric shows at the first validation."""
    world = World()
    experiment = world.create(searcher=config("single")["searcher"], max_restarts=5)
    (run,) = world.live()
    world.start(run)
    world.report(run, "metrics", group="training", steps_completed=1, metrics={"loss": 0.5})
    world.report(run, "early_exit", reason=f"{WOULD_FAIL_AGAIN}acuracy is not among them")
    world.end(run, {**FAILED, "message": "exit code 1: MetricMissing: acuracy is not among them"})
    trial = world.state.experiments[experiment.id].trials[0]
    assert (trial.state, trial.restarts, world.live()) == (State.ERROR, 0, [])
    assert trial.reason == (
        "exit code 1: MetricMissing: acuracy is not among them (it would fail again, so it was not restarted)"
    )
    assert {attempt.end for attempt in world.rows(Attempt)} == {End.USER_ERROR}


def test_what_a_launcher_refused_is_not_tried_again() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.end(run, {**FAILED, "exit_code": 2, "phase": "launch", "message": "deepspeed: unrecognized arguments: --foo"})
    trial = world.state.experiments[experiment.id].trials[0]
    assert (trial.state, trial.restarts) == (State.ERROR, 0)
    assert trial.reason == "deepspeed: unrecognized arguments: --foo"


def test_node_failures_and_preemptions_are_free() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    for steps, record in enumerate((JobState.NODE_FAIL, JobState.PREEMPTED, JobState.TIMEOUT) * 5, start=1):
        (run,) = world.live()
        world.start(run)
        world.report(run, "checkpoint", uuid=f"c{steps}", steps_completed=steps, metadata={}, resources={})
        world.end(run, None, record)
    (run,) = world.live()
    assert world.trial(run).restarts == 0


@pytest.mark.parametrize(("record", "runs"), [(JobState.TIMEOUT, 3), (JobState.NODE_FAIL, 12)])
def test_a_trial_that_never_gets_further_is_stopped_with_an_explanation(record: JobState, runs: int) -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    for count in range(runs):
        (run,) = world.live()
        world.start(run)
        world.report(run, "metrics", group="training", steps_completed=9, metrics={"loss": 1.0})
        if count == 0:
            world.report(run, "checkpoint", uuid="c", steps_completed=4, metadata={}, resources={})
            world.end(run, None, record)
            continue
        world.report(run, "checkpoint", uuid=f"c{count}", steps_completed=4, metadata={}, resources={})
        world.end(run, None, record)
    (run,) = world.live()  # the first one had made progress
    world.start(run)
    world.end(run, None, record)
    trial = world.state.experiments[experiment.id].trials[0]
    assert (trial.state, trial.restarts) == (State.ERROR, 0)
    assert trial.reason.startswith("no progress, run after run")
    assert world.live() == []


def test_a_job_that_is_requeued_for_ever_is_stopped_too() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    for _ in range(12):
        assert world.state.runs[run.id].intent is Intent.GO
        world.start(run)
        world.end(run, None, None, requeued=True)
    assert world.state.runs[run.id].intent is Intent.KILL
    world.end(run, None, JobState.CANCELLED)
    trial = world.state.experiments[experiment.id].trials[0]
    assert trial.state is State.ERROR
    assert trial.reason.startswith("no progress, run after run")


def test_a_trial_rests_after_a_failure_and_longer_after_the_next() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"], max_restarts=3)
    for rest, error in ((5, "OSError"), (10, "KeyError"), (20, "ValueError")):
        (run,) = world.live()
        world.start(run)
        world.end(run, {**FAILED, "message": error}, rest=5)
        assert world.live() == []
        assert next_deadline(world.state) == pytest.approx(world.clock + rest)
        world.do(events.Tick(world.clock + rest - 1))
        world.do(events.Schedule(world.clock + rest - 1))
        assert world.live() == []
        world.assert_memory_is_a_fold_of_the_rows()
        world.do(events.Tick(world.clock + rest))
    assert len(world.live()) == 1
    assert next_deadline(world.state) is None
    world.start(world.live()[0])
    world.end(world.live()[0], FAILED, rest=5)
    assert world.state.experiments[experiment.id].row.state is State.ERROR


def test_a_clock_that_is_set_back_ends_a_rest_rather_than_to_prolong_it() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    world.start(world.live()[0])
    world.end(world.live()[0], FAILED, rest=5)
    yesterday = world.clock - 86400
    assert overdue(world.state, yesterday) and not overdue(world.state, world.clock)
    world.do(events.Tick(yesterday))
    assert len(world.live()) == 1


def test_a_resting_trial_can_be_killed() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.end(run, FAILED, rest=5)
    world.do(events.Kill(experiment.id, world.now()))
    assert world.state.experiments[experiment.id].row.state is State.CANCELED
    assert next_deadline(world.state) is None


def test_what_failed_is_no_progress() -> None:
    world = World()
    experiment = world.create(searcher=config(max_trials=2, max_concurrent_trials=2)["searcher"], max_restarts=0)
    first, second = world.live()
    for run in (first, second):
        world.start(run)
    world.report(first, "progress", progress=0.5)
    world.end(first, FAILED)
    world.end(second, FAILED)
    row = world.state.experiments[experiment.id].row
    assert (row.state, row.progress) == (State.ERROR, 0.25)


@pytest.mark.parametrize("length", [{"max_length": {"batches": 100}}, {}])
def test_an_experiment_is_as_far_as_what_its_trials_report(length: dict[str, Any]) -> None:
    world = World()
    experiment = world.create(searcher=config(max_trials=2, max_concurrent_trials=2, **length)["searcher"])
    first, second = world.live()
    for run in (first, second):
        world.start(run)

    def progress() -> float:
        return world.state.experiments[experiment.id].row.progress

    for steps in (20, 50):
        world.report(first, "metrics", group="training", steps_completed=steps, metrics={"loss": 1.0})
        assert progress() == (steps / 200 if length else 0.0)
    world.report(second, "progress", progress=0.9)
    assert progress() == (0.7 if length else 0.45)
    world.end(first, FINISHED)
    assert progress() == 0.95


def test_what_is_trained_again_is_no_progress() -> None:
    world = World()
    experiment = world.create(searcher=config("single", max_length={"batches": 100})["searcher"])
    (run,) = world.live()
    world.start(run)
    world.report(run, "checkpoint", uuid="a", steps_completed=20)
    world.report(run, "metrics", group="training", steps_completed=80, metrics={"loss": 1.0})
    assert world.state.experiments[experiment.id].row.progress == 0.8
    world.end(run, FAILED)
    (run,) = world.live()
    world.start(run)
    world.do(events.Kill(experiment.id, world.now()))
    world.end(run, STOPPED)
    assert world.state.experiments[experiment.id].row.progress == 0.2


@pytest.mark.parametrize("value", [10**400, "far", None, [1]])
def test_a_length_that_is_no_number_of_a_float_is_no_progress(value: Any) -> None:
    world = World()
    experiment = world.create(searcher=config("single", max_length={"epochs": 10})["searcher"])
    (run,) = world.live()
    world.start(run)
    world.report(run, "metrics", group="training", steps_completed=1, metrics={"epochs": value})
    assert world.state.experiments[experiment.id].row.progress == 0.0


def test_losing_run_after_run_without_evidence_ends_the_trial() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    for _ in range(5):
        (run,) = world.live()
        world.start(run)
        world.end(run, None)
    assert world.state.experiments[experiment.id].row.state is State.ERROR


def test_pause_stops_running_trials_and_activate_resumes_from_the_checkpoint() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    for step_number in (1, 2):
        world.report(run, "metrics", group="training", steps_completed=step_number, metrics={"loss": 1.0})
    world.report(run, "checkpoint", uuid="c1", steps_completed=2, metadata={}, resources={})
    world.report(run, "metrics", group="training", steps_completed=3, metrics={"loss": 1.0})
    world.do(events.Pause(experiment.id, world.now()))
    assert world.state.runs[run.id].intent is Intent.STOP
    world.end(run, STOPPED)
    assert world.live() == []
    world.do(events.Activate(experiment.id, world.now()))
    (again,) = world.live()
    world.start(again)
    assert world.trial(again).steps_completed == 2
    first = next(a for a in world.rows(Attempt) if a.run_id == run.id)
    assert first.void_after == 3, "what came after the checkpoint is trained again and must not count twice"


def test_a_checkpoint_that_cannot_be_used_voids_everything_before() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.report(run, "checkpoint", uuid="c1", steps_completed=2, metadata={}, resources={})
    world.end(run, None, JobState.NODE_FAIL)
    (again,) = world.live()
    world.do(events.Submitted(again.id, "j", world.now()))
    world.do(events.AttemptStarted(again.id, 0, ["n0"], None, 0, world.now()))
    first = next(a for a in world.rows(Attempt) if a.run_id == run.id)
    assert first.void_after == 0
    assert world.trial(again).latest_checkpoint is None


@pytest.mark.parametrize(("phase", "tries"), [("rendezvous", 3), ("unpack", 5)])
def test_runs_that_never_begin_to_train_are_given_up(phase: str, tries: int) -> None:
    world = World()
    world.create(searcher=config("single")["searcher"], max_restarts=0)
    report = {"finished": False, "exit_code": None, "phase": phase, "message": "n1 had not come"}
    for _ in range(tries):
        (run,) = world.live()
        world.start(run)
        world.end(run, report)
    (trial,) = world.rows(Trial)
    assert (trial.state, trial.restarts) == (State.ERROR, 0)
    assert trial.reason == f"{tries} runs in a row ended without training: n1 had not come"


def test_events_of_an_attempt_that_is_over_are_void() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.end(run, None, JobState.NODE_FAIL, requeued=True)
    world.do(events.AttemptStarted(run.id, 1, ["n1"], None, 0, world.now()))
    data = {"group": "training", "steps_completed": 9, "metrics": {"loss": 0.0}}
    world.do(events.Reported(run.id, 0, [Report(1, world.now(), "metrics", data)], world.now()))
    assert world.rows(Metric) == []


def test_what_a_lost_node_wrote_before_its_job_began_anew_counts_up_to_the_checkpoint_it_went_on_from() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.report(run, "metrics", group="training", steps_completed=1, metrics={"loss": 0.1})
    world.end(run, None, JobState.NODE_FAIL, requeued=True)
    world.report(run, "metrics", group="training", steps_completed=2, metrics={"loss": 0.2})
    world.report(run, "checkpoint", uuid="c2", steps_completed=2, metadata={}, resources={})
    world.report(run, "metrics", group="training", steps_completed=3, metrics={"loss": 0.3})
    world.do(events.AttemptStarted(run.id, 1, ["n1"], "c2", 2, world.now()))
    first = next(attempt for attempt in world.rows(Attempt) if attempt.number == 0)
    assert first.void_after == 3, "the third report was made again"
    assert world.trial(run).steps_completed == 2 and world.trial(run).latest_checkpoint == "c2"
    assert [metric.steps_completed for metric in world.rows(Metric)] == [1, 2, 3]


def test_reports_are_applied_once_and_never_past_a_gap() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    reports = [
        Report(seq, 0.0, "metrics", {"group": "training", "steps_completed": seq, "metrics": {"x": seq}})
        for seq in (1, 2, 4)
    ]
    for _ in range(2):
        world.do(events.Reported(run.id, 0, reports, world.now()))
    assert [metric.seq for metric in world.rows(Metric)] == [1, 2]


def test_scancel_from_outside_pauses_the_trial() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.end(run, None, JobState.CANCELLED)
    row = world.state.experiments[experiment.id].row
    assert row.state is State.PAUSED
    assert "cancelled outside" in row.reason
    world.do(events.Activate(experiment.id, world.now()))
    assert len(world.live()) == 1


def test_an_experiment_whose_last_trials_are_paused_is_paused_itself() -> None:
    world = World()
    experiment = world.create(searcher=config(max_trials=2, max_concurrent_trials=2)["searcher"])
    first, second = world.live()
    world.start(first)
    world.start(second)
    world.end(first, None, JobState.CANCELLED)
    assert world.state.experiments[experiment.id].row.state is State.ACTIVE
    world.end(second, FINISHED)
    assert world.state.experiments[experiment.id].row.state is State.PAUSED
    world.do(events.Activate(experiment.id, world.now()))
    assert len(world.live()) == 1


def test_max_slots_is_never_exceeded() -> None:
    world = World()
    resources = {"slots_per_trial": 2, "max_slots": 5, "resource_pool": "main"}
    world.create(resources=resources, searcher=config(max_trials=8, max_concurrent_trials=8)["searcher"])
    assert len(world.live()) == 2


def test_no_more_runs_wait_in_the_schedulers_queue_than_the_pools_window() -> None:
    world = World()
    world.state.rules = {"main": Rules(window=3)}
    world.create(searcher=config(max_trials=8, max_concurrent_trials=8)["searcher"])
    assert len(world.live()) == 3
    world.start(world.live()[0])
    world.do(events.Schedule(world.now()))
    assert len(world.live()) == 4, "one has left the queue, so another may join it"


def test_a_run_that_does_not_stop_in_time_is_killed() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"], preemption_timeout=10)
    (run,) = world.live()
    world.start(run)
    world.do(events.Pause(experiment.id, world.now()))
    world.do(events.Tick(world.clock + 5))
    assert world.state.runs[run.id].intent is Intent.STOP
    world.do(events.Tick(world.clock + 10))
    assert world.state.runs[run.id].intent is Intent.KILL
    world.end(run, None, JobState.CANCELLED)
    assert world.rows(Run)[0].end is End.KILLED
    assert world.state.experiments[experiment.id].row.state is State.PAUSED


def test_invalid_hyperparameters_are_replaced_by_another_trial() -> None:
    world = World()
    experiment = world.create(searcher=config(max_trials=2, max_concurrent_trials=1)["searcher"])
    (run,) = world.live()
    world.start(run)
    world.report(run, "early_exit", reason="EXITED_REASON_INVALID_HP")
    world.end(run, FINISHED)
    while runs := world.live():
        world.start(runs[0])
        world.end(runs[0], FINISHED)
    states = [trial.state for trial in world.state.experiments[experiment.id].trials]
    assert states == [State.ERROR, State.COMPLETED, State.COMPLETED]
    assert world.state.experiments[experiment.id].row.state is State.COMPLETED


def test_a_refused_submission_ends_the_trial_with_the_schedulers_words() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.do(events.SubmitFailed(run.id, "invalid partition specified: nope", world.now()))
    row = world.state.experiments[experiment.id].row
    assert row.state is State.ERROR
    assert "invalid partition" in row.reason


SEARCHES: dict[str, dict[str, Any]] = {
    "random": {},
    "grid": {},
    "single": {},
    "adaptive_asha": {"max_trials": 8, "max_rungs": 2, "divisor": 2, "time_metric": "batches", "max_time": 4},
    "adaptive_simple": {"max_trials": 6, "max_rungs": 2, "divisor": 2, "max_length": {"batches": 4}},
    "pbt": {
        "population_size": 3,
        "num_rounds": 3,
        "length_per_round": {"batches": 2},
        "replace_function": {"truncate_fraction": 0.34},
        "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.2},
    },
}

ACTIONS = st.sampled_from(
    [
        "start",
        "train",
        "checkpoint",
        "finish",
        "fail",
        "stopped",
        "lost",
        "requeue",
        "node_fail",
        "scancel",
        "invalid",
        "pause",
        "activate",
        "cancel",
        "kill_trial",
        "tick",
        "rest",
        "continue",
        "matched",
    ]
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(ACTIONS, st.integers(0, 7)), max_size=80), st.sampled_from(list(SEARCHES)))
def test_memory_is_a_fold_of_the_rows_whatever_happens(actions: list[tuple[str, int]], method: str) -> None:
    world = World()
    hyperparameters = {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10, "count": 3}}
    experiment = world.create(searcher=config(method, **SEARCHES[method])["searcher"], hyperparameters=hyperparameters)
    for number, (action, choice) in enumerate(actions):
        if action == "continue":
            with suppress(Refused):  # it has not ended, or every trial completed, or its method does not allow it
                world.go_on(experiment.id)
        else:
            play(world, experiment.id, action, choice, number)
        world.assert_memory_is_a_fold_of_the_rows()
        trials = world.rows(Trial)
        assert [t.hparams for t in trials] == [t.hparams for t in world.state.experiments[experiment.id].trials]
        per_trial = [run.task_id for run in world.live()]
        assert len(per_trial) == len(set(per_trial)), "a trial never has two live runs"


def play(world: World, experiment_id: int, action: str, choice: int, number: int) -> None:
    runs = world.live()
    run = runs[choice % len(runs)] if runs else None
    row = world.state.experiments[experiment_id].row
    if action == "pause" and row.state in (State.ACTIVE, State.PAUSED):
        world.do(events.Pause(experiment_id, world.now()))
    elif action == "activate" and row.state in (State.ACTIVE, State.PAUSED):
        world.do(events.Activate(experiment_id, world.now()))
    elif action == "cancel" and number > 60 and not row.state.terminal:
        world.do(events.Cancel(experiment_id, world.now()))
    elif action == "tick":
        world.do(events.Tick(world.now() + 10000 * choice))
    elif run is None:
        return
    elif action == "start" and run.state is not RunState.RUNNING:
        world.start(run)
    elif action == "kill_trial" and not world.trial(run).state.terminal:
        world.do(events.KillTrial(world.state.tasks[run.task_id].trial_id, world.now()))
    elif run.state is not RunState.RUNNING:
        return
    elif action == "train":
        world.report(run, "metrics", group="validation", steps_completed=choice, metrics={"loss": choice / 7})
    elif action == "checkpoint":
        world.report(run, "checkpoint", uuid=f"c{number}", steps_completed=choice, metadata={}, resources={})
    elif action == "invalid":
        world.report(run, "early_exit", reason="EXITED_REASON_INVALID_HP")
    elif action == "requeue":
        world.end(run, None, None, requeued=True)
    elif action == "rest":
        world.end(run, FAILED, rest=choice)
    elif action in ("finish", "fail", "stopped", "lost", "node_fail", "scancel", "matched"):
        report = {"finish": FINISHED, "fail": FAILED, "stopped": STOPPED, "matched": FAILED}.get(action)
        found = [matched(("", CANCEL_RETRIES, EXCLUDE_NODE)[choice % 3])] * (action == "matched")
        record = {"node_fail": JobState.NODE_FAIL, "scancel": JobState.CANCELLED}.get(action)
        world.end(run, report, record, matched=found)


def test_an_experiment_whose_stored_configuration_is_invalid_is_named() -> None:
    world = World()
    row = replace(world.create(), id=7, config={"entrypoint": "train", "searcher": {"name": "gone", "metric": "loss"}})
    with pytest.raises(StoreError, match="experiment 7: its stored configuration is invalid"):
        world.state.apply(row)


def test_a_batch_of_reports_is_one_row_of_its_trial() -> None:
    world = World()
    world.create()
    run = world.rows(Run)[0]
    world.start(run)
    data = {"group": "training", "metrics": {"loss": 1.0}}
    told = [Report(n, 1.0, "metrics", {**data, "steps_completed": 60 - n}) for n in range(1, 51)]
    rows = world.do(events.Reported(run.id, 0, told, world.now()))
    assert world.trial(run).steps_completed == 59
    assert [type(row) for row in rows] == [Metric] * 50 + [Trial, Attempt]
