"""What the reconciler does with runs, nodes and a scheduler that may be slow, silent or forgetful."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import SiteConfig
from dethpc.domain.attempts.log_policies import CANCEL_RETRIES, LogMatch, Noted
from dethpc.domain.facts import Row, Run
from dethpc.domain.ids import AttemptId, earlier_job_name, job_name
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import JobRequest, JobState
from dethpc.domain.states import CheckpointState, End, Intent, RunState, State
from dethpc.engine import events
from dethpc.engine.queueing.pools import Rules
from dethpc.errors import LeaseHeld, StoreError, SubmitDeferred, SubmitUncertain
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.scheduler import find_scheduler
from dethpc.master.submitting.hand_over import SUBMITTING
from dethpc.master.submitting.submit import TRIES_TO_WRITE
from dethpc.master.watching import poll
from dethpc.master.watching.live_runs import Cadence, Pace
from dethpc.master.watching.poll import AFTER_REQUEUE
from dethpc.master.watching.trouble import TRIES_OF_A_DISK
from dethpc.rundir import logline
from dethpc.rundir.files import create_once, sealed, write_json
from dethpc.rundir.home import Home
from dethpc.state import queries
from tests import doorbells
from tests.master.conftest import CONFIG, T0
from tests.master.reconciler_world import CLUSTER, NEVER, World


@pytest.fixture(autouse=True)
def nothing_is_left_to_a_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if record.exc_info], "an error was logged and forgotten"


# --- submitting


def test_a_wanted_run_is_submitted_once(world: World) -> None:
    world.cycle(3)
    assert [(run.state, run.scheduler_job_id) for run in world.runs()] == [
        (RunState.PENDING, world.job(run.id).job_id) for run in world.runs()
    ]
    assert world.fake.requests["submit"] == 3 == world.fake.count()


def test_what_is_refused_for_good_ends_its_trial_in_the_schedulers_words(world: World) -> None:
    world.fake.rejects = "invalid account"
    world.cycle()
    assert (world.trial().state, world.trial().reason) == (State.ERROR, "invalid account")
    assert "the job was refused for good: invalid account" in world.home.run("1.1.1").waiting(0).read_text(), "its log"


def test_what_the_site_has_closed_for_a_while_ends_no_trial(world: World) -> None:
    """At the first submission already."""
    world.fake.defers = "Required partition not available (inactive or drain)"
    world.cycle(5)
    assert {run.state for run in world.runs()} == {RunState.SUBMITTING}
    assert sorted(world.told) == [(run.id, world.fake.defers) for run in world.runs()], "each trial is told once"
    hold = world.holds.of(world.run())
    assert hold is not None and hold.why == world.fake.defers
    world.fake.defers = ""
    world.cycle(2)
    assert {run.state for run in world.runs()} == {RunState.PENDING} and world.holds.of(world.run()) is None


def test_a_refusal_of_what_was_taken_before_holds_the_experiment(world: World) -> None:
    world.fake.rejects_after = 1
    world.fake.rejects = "Invalid account or account/partition combination specified"
    world.cycle(5)
    assert {world.run(id).state for id in ("1.2.1", "1.3.1")} == {RunState.SUBMITTING}
    assert {id for id, _ in world.told} == {"1.2.1", "1.3.1"}
    world.fake.rejects = ""
    world.cycle(3)
    assert {run.state for run in world.runs()} == {RunState.PENDING}


def test_a_job_that_was_taken_and_is_over_before_it_began_counts_as_taken(worlds: Callable[..., World]) -> None:
    world = worlds(trials=1)
    world.cycle()
    world.fake.end(world.job().job_id, JobState.NODE_FAIL, None)
    world.fake.rejects = "Invalid account or account/partition combination specified"
    world.cycle(5)
    assert world.run("1.1.2").state is RunState.SUBMITTING and [id for id, _ in world.told] == ["1.1.2"]
    world.fake.rejects = ""
    world.cycle(2)
    assert world.run("1.1.2").state is RunState.PENDING


def test_a_held_experiment_is_tried_with_one_run_and_less_and_less_frequently(worlds: Callable[..., World]) -> None:
    world = worlds(fastest_poll=10.0, slowest_poll=60.0)
    world.fake.defers = "QOSMaxSubmitJobPerUserLimit"
    assert world.requests()["submit"] == 1, "of 3"
    assert "submit" not in world.requests(5)
    pauses = []
    for _ in range(5):
        hold = world.holds.of(world.run())
        assert hold is not None
        pauses.append(hold.pause)
        world.holds._holds[world.holds._held[1]] = replace(hold, next_try=0.0)
        assert world.requests()["submit"] == 1
    assert pauses == [10, 20, 40, 60, 60]


def another_experiment(world: World) -> None:
    searcher = {**CONFIG["searcher"], "max_trials": 3, "max_concurrent_trials": 3}
    config = ExperimentConfig.from_json({**CONFIG, "searcher": searcher})
    world.ledger.do(events.CreateExperiment("ada", config, "", "", 7, str(UUID(int=2)), True, T0))


def test_a_held_experiment_keeps_no_other_from_its_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger.state.rules = {"default": Rules(window=3)}
    submit = world.fake.submit

    def only_the_second(job: JobRequest) -> str:
        if job.run_id.startswith("1."):
            raise SubmitDeferred("AssocMaxSubmitJobLimit")
        return submit(job)

    monkeypatch.setattr(world.fake, "submit", only_the_second)
    world.cycle(2)
    another_experiment(world)
    world.cycle(2)
    assert [(run.id[0], run.state) for run in world.runs()] == [
        *[("1", RunState.SUBMITTING)] * 3,
        *[("2", RunState.PENDING)] * 3,
    ]
    assert {run.reason for run in world.runs() if run.id[0] == "1"} == {"AssocMaxSubmitJobLimit"}


def test_a_limit_that_lets_one_job_in_costs_two_submissions_and_not_one_of_each_run(
    worlds: Callable[..., World],
) -> None:
    world = worlds(trials=9, fastest_poll=10.0, slowest_poll=60.0)
    world.fake.defers = "QOSMaxSubmitJobPerUserLimit"
    world.cycle()
    held = world.holds._held[1]
    submit, let_in = world.fake.submit, []

    def one(job: JobRequest) -> str:
        world.fake.defers = held[1] if let_in else ""
        let_in.append(submit(job))
        return let_in[-1]

    world.fake.submit = one  # type: ignore[method-assign]
    world.holds._holds[held] = replace(world.holds._holds[held], next_try=0.0)
    assert world.requests(4)["submit"] == 2 and len(let_in) == 1


def test_what_is_refused_in_the_same_words_is_tried_together(worlds: Callable[..., World]) -> None:
    world = worlds(fastest_poll=10.0, slowest_poll=60.0)
    another_experiment(world)
    world.fake.defers = "Required partition not available (inactive or drain)"
    assert world.requests()["submit"] == 2, "of 6: one of each experiment"
    tried = []
    for _ in range(4):
        held = world.holds._held[1]
        assert world.holds._held[2] == held
        world.holds._holds[held] = replace(world.holds._holds[held], next_try=0.0)
        before = {live.run.id: live.refused_at for live in world.live.all()}
        assert world.requests()["submit"] == 1
        tried += [live.run.id for live in world.live.all() if live.refused_at != before[live.run.id]]
    assert len(set(tried)) == 4, "each run in its turn"
    assert [id[0] for id in tried] in (["1", "2", "1", "2"], ["2", "1", "2", "1"]), (
        "and each experiment, however many it has"
    )
    world.fake.defers = ""
    world.holds._holds[held] = replace(world.holds._holds[held], next_try=0.0)
    world.cycle(2)
    assert {run.state for run in world.runs()} == {RunState.PENDING}


def test_a_held_run_that_nobody_wants_any_more_ends(world: World) -> None:
    world.fake.defers = "Required partition not available (inactive or drain)"
    world.cycle(2)
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle()
    assert world.ended("1.1.1")


def test_what_cannot_be_prepared_ends_its_trial_and_no_other(world: World) -> None:
    world.refusals["1.2.1"] = "7 slots on nodes of 4"
    world.cycle()
    assert (world.trial(2).state, world.trial(2).reason) == (State.ERROR, "7 slots on nodes of 4")
    assert world.run("1.1.1").state is world.run("1.3.1").state is RunState.PENDING


def test_a_silent_scheduler_is_left_alone_for_a_while_and_the_runs_wait(worlds: Callable[..., World]) -> None:
    world = worlds(fastest_poll=NEVER)
    world.fake.silent = True
    world.cycle()
    assert world.requests(5) == {}
    assert {run.state for run in world.runs()} == {RunState.SUBMITTING}


def test_a_run_that_nobody_wants_any_more_is_not_submitted(world: World) -> None:
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle()
    assert world.ended("1.1.1") and world.fake.named("1.1.1") == []


def test_a_job_that_claimed_its_run_is_adopted_without_a_question(world: World) -> None:
    world.fake.silent = True
    world.cycle()
    world.node_starts("1.1.1", job_id="4242")
    before = world.fake.requests.copy()
    world.reconciler = world.start()
    world.fake.silent, world.fake.settle = False, NEVER
    world.cycle()
    assert (world.run().state, world.run().scheduler_job_id) == (RunState.RUNNING, "4242")
    assert "find" not in world.fake.requests - before and world.fake.named("1.1.1") == []


def test_a_kill_is_seen_at_once_and_many_kills_ask_out_of_turn_once(worlds: Callable[..., World]) -> None:
    world = worlds(fastest_poll=NEVER, confirm=0.0)
    world.cycle()
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(2)
    assert world.ended("1.1.1"), "what waits for its slots does not wait for the next poll"
    polls = world.fake.requests["nodes"] + world.fake.requests["records"]
    world.ledger.do(events.KillTrial(2, T0))
    world.cycle(5)
    assert world.fake.cancelled == ["1", "2"] and not world.ended("1.2.1")
    assert world.fake.requests["nodes"] + world.fake.requests["records"] == polls


def test_a_killed_job_that_waited_is_over_at_once_and_one_that_ran_is_looked_at_again(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(fastest_poll=NEVER, confirm=0.0)
    world.fake.slots = 1
    world.cycle()
    world.node_starts("1.1.1")
    world.cycle()
    cancel = world.fake.cancel

    def not_at_once(job_ids: Sequence[str]) -> None:
        cancel([job_id for job_id in job_ids if job_id != "1"])

    monkeypatch.setattr(world.fake, "cancel", not_at_once)
    for trial in (1, 2):
        world.ledger.do(events.KillTrial(trial, T0))
    world.cycle()
    assert world.ended("1.2.1") and not world.ended("1.1.1")
    cancel(["1"])
    world.cycle()
    assert world.ended("1.1.1")


def test_what_a_poll_says_of_many_jobs_is_not_committed_one_by_one(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(trials=40)
    world.cycle(2)
    commit, waits = world.live.do, list[events.Event]()
    monkeypatch.setattr(world.live, "do", lambda event: (waits.append(event), commit(event)))
    for run in world.runs():
        world.fake.end(str(run.scheduler_job_id), JobState.CANCELLED)
    world.cycle()
    assert all(world.ended(f"1.{trial}.1") for trial in range(1, 41)) and len(waits) < 5


def test_submissions_that_take_long_leave_their_turn_to_what_else_is_to_do(worlds: Callable[..., World]) -> None:
    world = worlds(trials=5, submit_for=0.0)
    for done in range(1, 6):
        world.cycle()
        assert world.fake.requests["submit"] == done
    assert [world.job(f"1.{trial}.1").job_id for trial in range(1, 6)] == ["1", "2", "3", "4", "5"]


def test_another_master_that_took_over_ends_this_one_before_it_submits(world: World) -> None:
    (world.home.master_file).write_text('{"host": "elsewhere", "pid": 1, "generation": 99}')
    with pytest.raises(LeaseHeld):
        world.cycle()
    assert world.fake.requests["submit"] == 0


# --- an unclear submission


def test_an_unclear_submission_that_was_taken_is_adopted_and_not_repeated(world: World) -> None:
    world.fake.settle = NEVER
    world.fake.answers_lost = True
    world.cycle(5)
    world.fake.answers_lost = False
    world.cycle(5)
    assert {run.state for run in world.runs()} == {RunState.PENDING}
    assert [run.scheduler_job_id for run in world.runs()] == [world.job(run.id).job_id for run in world.runs()]


def test_a_job_whose_id_was_not_committed_is_found_before_its_run_is_given_up(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(trials=1)
    commit, failures = world.store.commit, [StoreError("database or disk is full")]

    def fails(rows: Sequence[Row], *rest: Any) -> None:
        if failures and any(isinstance(row, Run) and row.state is RunState.PENDING for row in rows):
            raise failures.pop()
        commit(rows, *rest)

    monkeypatch.setattr(world.store, "commit", fails)
    with pytest.raises(StoreError):
        world.cycle()
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(5)
    assert world.ended() and world.fake.cancelled == [world.job().job_id]


def test_an_unclear_submission_is_repeated_only_after_the_time_in_which_its_job_may_appear(world: World) -> None:
    world.fake.settle = NEVER
    world.fake.never_arrives = True
    world.cycle(5)
    world.fake.never_arrives = False
    world.cycle(5)
    assert world.fake.count() == 0 and {run.state for run in world.runs()} == {RunState.SUBMITTING}
    world.fake.settle = 0.0
    world.cycle(5)
    assert {run.state for run in world.runs()} == {RunState.PENDING} and world.fake.count() == 3


def test_a_master_that_starts_again_looks_for_the_job_of_an_unclear_submission(world: World) -> None:
    world.fake.answers_lost = True
    world.cycle()
    world.fake.answers_lost = False
    world.reconciler = world.start()
    world.cycle(3)
    assert {run.state for run in world.runs()} == {RunState.PENDING}
    assert all(len(world.fake.named(run.id)) == 1 for run in world.runs())


def test_a_job_that_accounting_alone_knows_is_adopted(world: World) -> None:
    world.fake.answers_lost = True
    world.cycle()
    world.fake.answers_lost = False
    job = world.fake.named("1.1.1")[0]
    world.fake.end(job.job_id, JobState.FAILED, 1)
    world.fake.forgotten.add(job.job_id)
    world.cycle(3)
    assert len(world.fake.named("1.1.1")) == 1, "it was not submitted a second time"
    assert world.ended("1.1.1")


def known_to_accounting_alone(world: World) -> str:
    """The id of the job of run 1.1.1, whose submission is unclear: it ended before anybody saw it in the queue."""
    world.fake.settle, world.fake.answers_lost = NEVER, True
    world.fake.unseen |= {"1", "2", "3"}
    world.cycle()
    (job,) = world.fake.named("1.1.1")
    assert world.run().state is RunState.SUBMITTING
    world.fake.end(job.job_id, JobState.FAILED, 1)
    world.fake.forgotten.add(job.job_id)
    world.fake.unseen.clear()
    world.fake.settle, world.fake.answers_lost = 0.0, False
    return job.job_id


def test_a_job_that_an_earlier_release_submitted_under_another_name_is_adopted(world: World) -> None:
    world.fake.rename(known_to_accounting_alone(world), earlier_job_name(CLUSTER, "1.1.1"))
    world.cycle(3)
    assert world.fake.named("1.1.1") == [], "it was not submitted a second time"
    assert world.ended("1.1.1")


def test_a_job_is_looked_up_under_the_name_that_its_script_says(world: World) -> None:
    """The experiment may have another name by now."""
    job_id = known_to_accounting_alone(world)
    name = job_name(CLUSTER, "1.1.1", "another")
    world.fake.rename(job_id, name)
    world.home.run("1.1.1").script.write_text(f"#!/bin/bash\n#SBATCH --job-name={name}\n")
    world.cycle(3)
    assert [job.job_id for job in world.fake.named("1.1.1")] == [job_id] and world.ended("1.1.1")


def test_a_run_whose_script_cannot_be_read_is_not_taken_for_one_without_a_job(world: World) -> None:
    job_id = known_to_accounting_alone(world)
    script = world.home.run("1.1.1").script
    script.rename(script.with_suffix(".kept"))
    script.mkdir()
    world.cycle(2)
    assert world.run().state is RunState.SUBMITTING and len(world.fake.named("1.1.1")) == 1
    script.rmdir()
    script.with_suffix(".kept").rename(script)
    world.cycle(3)
    assert [job.job_id for job in world.fake.named("1.1.1")] == [job_id] and world.ended("1.1.1")


def test_of_two_jobs_of_a_run_the_one_that_may_claim_it_stays(world: World) -> None:
    """The first one appeared after the second was submitted, which got no answer either."""
    world.fake.answers_lost = True
    world.fake.unseen.add("1")
    for _ in range(20):
        world.cycle()
        if len(world.fake.named("1.1.1")) == 2:
            break
    assert len(world.fake.named("1.1.1")) == 2
    world.fake.unseen.clear()
    world.fake.answers_lost = False
    world.cycle(3)
    live = [record.job_id for record in world.fake.named("1.1.1") if record.state.live]
    assert world.run().scheduler_job_id in live
    assert [
        id for id in live if id != world.run().scheduler_job_id and world.fake.jobs()[id].state is JobState.PENDING
    ] == []


def test_an_unclear_submission_of_a_run_that_is_not_wanted_ends_it_once_no_job_can_appear(world: World) -> None:
    world.fake.settle = NEVER
    world.fake.never_arrives = True
    world.cycle()
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(3)
    assert not world.ended("1.1.1")
    world.fake.settle = 0.0
    world.cycle(3)
    assert world.ended("1.1.1") and world.fake.count() == 0


# --- the life of a run


def test_a_run_trains_reports_and_ends_without_a_word_of_the_scheduler(worlds: Callable[..., World]) -> None:
    world = worlds(fastest_poll=NEVER)
    world.cycle()
    world.node_starts()
    world.node_reports(steps=7)
    world.cycle()
    assert (world.run().state, world.trial().steps_completed) == (RunState.RUNNING, 7)
    world.node_ends()
    world.cycle()
    assert world.ended() and world.trial().state is State.COMPLETED
    assert world.home.run("1.1.1").closed.exists()


@pytest.mark.parametrize("rings", [False, True], ids=["journal", "doorbell"])
def test_no_report_takes_over_another_trials_checkpoint(worlds: Callable[..., World], rings: bool) -> None:
    """Its files would go with the trial that says so."""
    world = worlds(trials=1)
    world.cycle()
    world.node_starts()
    world.node_says("1.1.1", "checkpoint", uuid="c1", steps_completed=1, metadata={}, resources={})
    world.node_ends()
    world.cycle()
    world.create(2, trials=1)
    (run,) = (run for run in world.runs() if run.experiment_id == 2)
    world.cycle()
    world.node_starts(run.id)
    world.cycle()
    said = world.node_says(run.id, "checkpoint", uuid="c1", steps_completed=5, metadata={}, resources={})
    if rings:
        doorbells.post(Doorbell(world.ledger, world.store, world.live), AttemptId(run.id, 0), [said])
    world.node_says(run.id, "checkpoint", uuid="c2", steps_completed=6, metadata={}, resources={})
    world.cycle()
    assert (world.checkpoint("c1").trial_id, world.checkpoint("c1").steps_completed) == (1, 1)
    assert world.trial(2).latest_checkpoint == "c2" and world.checkpoint("c2").trial_id == 2
    told = world.home.run(run.id).waiting(0)
    assert rings or "the report of checkpoint c1 counts for nothing: it is trial 1's" in told.read_text()


@pytest.mark.parametrize("rings", [False, True], ids=["journal", "doorbell"])
@pytest.mark.parametrize("closed", ["experiment", "trial"])
def test_a_damaged_checkpoint_of_a_trial_that_is_over_is_marked_by_the_one_that_was_to_begin_there(
    worlds: Callable[..., World], closed: str, rings: bool
) -> None:
    world = worlds(trials=1 if closed == "experiment" else 2)
    world.cycle()
    world.node_starts()
    world.node_says("1.1.1", "checkpoint", uuid="c1", steps_completed=1, metadata={}, resources={})
    world.node_ends()
    world.cycle()
    assert world.trial(1).state is State.COMPLETED
    world.create(2, trials=1, source="c1")
    (run,) = (run for run in world.runs() if run.experiment_id == 2)
    world.cycle()
    world.node_starts(run.id, resumed_from="c1", resumed_steps=0)
    world.cycle()
    said = world.node_says(run.id, "checkpoint_damaged", uuid="c1", why="checkpoint c1: model is damaged")
    if rings:
        doorbells.post(Doorbell(world.ledger, world.store, world.live), AttemptId(run.id, 0), [said])
    world.node_ends(run.id, finished=False, exit_code=1)
    world.cycle()
    marked, trial = world.checkpoint("c1"), world.trial(int(run.id.split(".")[1]))
    assert (marked.state, marked.reason) == (CheckpointState.ERROR, "checkpoint c1: model is damaged")
    assert trial.state is State.ERROR and "this is where the trial was to begin" in trial.reason


def test_a_job_that_died_without_a_report_ends_its_run_by_the_schedulers_record(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    world.fake.end(world.job().job_id, JobState.OUT_OF_MEMORY, None)
    world.cycle(2)
    assert world.ended("1.1.1")
    assert world.ends["1.1.1", 0] is End.OUT_OF_MEMORY


def test_the_log_tells_of_the_beginning_and_the_end_in_the_words_that_scripts_look_for(
    worlds: Callable[..., World],
) -> None:
    world = worlds(trials=3)
    world.cycle()
    for id in ("1.1.1", "1.2.1", "1.3.1"):
        world.node_starts(id)
    world.cycle()
    world.node_ends("1.1.1", finished=True, exit_code=0)
    world.node_ends("1.2.1", exit_code=3, message="exit code 3")
    world.cycle()
    job = world.job("1.3.1").job_id
    world.fake.end(job, JobState.FAILED, 137)
    world.cycle(2)
    told = {id: world.home.run(id).waiting(0).read_text() for id in ("1.1.1", "1.2.1", "1.3.1")}
    assert "New trial runner in (container 1.3.1.0) on agent " in told["1.3.1"]
    assert (
        "INFO\t-\tstderr\tEnded with exit code 0 (resources exited successfully with a zero exit code)\n"
        in told["1.1.1"]
    )
    for id, code in (("1.2.1", 3), ("1.3.1", 137)):
        for message in (
            f"\tERROR\t-\tstderr\tExited with exit code {code} (resources failed with",
            "container failed with",
        ):
            assert f"{message} non-zero exit code: {code}" in told[id]


def test_what_ended_while_no_master_ran_ended_then_in_lists_and_in_its_log(worlds: Callable[..., World]) -> None:
    world = worlds(trials=2)
    world.cycle()
    began = time.time() - 600
    for id in ("1.1.1", "1.2.1"):
        world.node_starts(id, at=began)
    world.cycle()
    world.node_ends("1.1.1", at=began + 14)
    world.fake.end(world.job("1.2.1").job_id, JobState.OUT_OF_MEMORY, 137, at=began + 15)
    world.reconciler = world.start()  # the next master
    world.cycle(2)
    with world.store.read() as connection:
        ends = [queries.attempts_of_trial(connection, number)[0].ended_at for number in (1, 2)]
        runs = [queries.run(connection, id).ended_at for id in ("1.1.1", "1.2.1")]
    assert ends == runs == [began + 14, began + 15]
    assert world.trial(1).ended_at == began + 14
    for id, message, at in (
        ("1.1.1", "Ended with exit code 0", ends[0]),
        ("1.2.1", "Exited with exit code 137", ends[1]),
    ):
        lines, _ = logline.read_lines(world.home.run(id).waiting(0))
        assert [line.at for line in lines if message in line.text] == [pytest.approx(at, abs=0.001)]


def test_an_attempt_whose_node_failed_while_no_master_ran_ended_before_the_next_started(world: World) -> None:
    world.cycle()
    began = time.time() - 600
    world.node_starts(at=began)
    world.cycle()
    world.node_starts(k=1, at=began + 100, prior={"0": 1})
    world.live.rung("1.1.1", every_attempt=True)
    world.cycle()
    (first, second) = world.ledger.state.attempts["1.1"]
    assert (first.end, first.ended_at, second.started_at) == (End.NODE_FAIL, began + 100, began + 100)


def test_what_a_log_policy_found_on_the_node_ends_the_trial_that_fails(worlds: Callable[..., World]) -> None:
    world = worlds(trials=2)
    world.cycle()
    match = LogMatch("card", "bad", CANCEL_RETRIES, "a bad card", "n0", T0)
    failed: dict[str, Any] = {"finished": False, "exit_code": 1}
    for id, end in (("1.1.1", failed), ("1.2.1", {})):
        world.node_starts(id)
        world.cycle()
        write_json(world.home.run(id).attempt(0).matched(0), sealed({"matches": [match.to_json()]}))
        world.node_ends(id, **end)
    world.cycle(2)
    told = [world.home.run(id).waiting(0).read_text() for id in ("1.1.1", "1.2.1")]
    words = 'trial failed and matched logs to a don\'t retry policy: (log "a bad card" matched regex bad)'
    assert words in told[0] and words not in told[1]
    first, second = world.trial(1), world.trial(2)
    assert (first.state, first.restarts, second.state) == (State.ERROR, 0, State.COMPLETED) and words in first.reason
    assert Noted.of(first.search).name == Noted.of(second.search).name == "card"


def test_a_trial_whose_job_cannot_be_made_says_why_in_its_log(worlds: Callable[..., World]) -> None:
    world = worlds(trials=1)
    world.refusals["1.1.1"] = "its log policies exclude n0"
    world.cycle()
    assert "no job can be made of it: its log policies exclude n0" in world.home.run("1.1.1").waiting(0).read_text()


def test_a_job_that_is_listed_no_more_is_given_up_only_after_a_while(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    world.fake.settle = NEVER
    world.fake.unseen.add(world.job().job_id)
    world.cycle(5)
    assert world.run().state is RunState.RUNNING
    world.fake.settle = 0.0
    world.cycle(2)
    assert world.ended("1.1.1")


def test_a_listing_without_a_job_does_not_count_once_the_job_is_back(world: World) -> None:
    world.cycle()
    world.fake.settle = NEVER
    world.fake.unseen.add(world.job().job_id)
    world.cycle()
    world.fake.unseen.clear()
    world.cycle()
    assert world.run().state is RunState.PENDING


def test_a_silent_scheduler_ends_no_run(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    world.fake.silent = True
    world.cycle(10)
    assert world.run().state is RunState.RUNNING


def test_a_pending_job_tells_its_reason(world: World) -> None:
    world.fake.slots = 0
    world.cycle(2)
    assert (world.run().state, world.run().reason) == (RunState.PENDING, "Priority")


# --- a listing that is not the truth


def test_a_job_that_a_listing_left_out_is_asked_for_a_second_way(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    world.fake.forgotten |= {run.scheduler_job_id or "" for run in world.runs()}
    world.cycle(5)
    assert world.run().state is RunState.RUNNING and world.fake.count() == 3


def test_a_run_that_goes_on_writing_is_alive_whatever_is_listed(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    world.fake.settle = NEVER
    world.fake.unseen.add(world.job().job_id)
    world.cycle()
    world.fake.settle = 0.0
    for steps in range(1, 5):
        world.node_reports(steps=steps)
        world.cycle()
        assert world.run().state is RunState.RUNNING
    world.cycle()
    assert world.ended("1.1.1"), "it is silent now"


def _given_up_while_unseen(world: World) -> str:
    """The scheduler loses sight of a job that runs, so its run is concluded; then it lists the job again. Returns the job's id."""
    world.cycle(2)
    world.node_starts()
    world.cycle()
    job_id = world.job().job_id
    world.fake.unseen.add(job_id)
    world.fake.settle = 0.0
    world.cycle()
    assert world.ended("1.1.1")
    world.fake.unseen.clear()
    return job_id


def test_the_job_of_a_run_that_was_given_up_is_cancelled_when_it_is_there_again(world: World) -> None:
    job_id = _given_up_while_unseen(world)
    assert world.fake.jobs()[job_id].state is JobState.RUNNING
    world.cycle()
    assert world.fake.cancelled == [job_id]


def test_a_job_whose_run_was_concluded_by_a_master_before_is_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "END_BY_ITSELF", 0.0)
    job_id = _given_up_while_unseen(world)
    world.reconciler = world.start()
    world.cycle(2)
    assert world.fake.cancelled == [job_id]
    others = [record.state.live for name in ("1.2.1", "1.3.1") for record in world.fake.named(name)]
    assert others == [True, True]


def test_a_job_of_a_run_that_nobody_knows_is_left_alone(world: World) -> None:
    script = world.home.root / "job"
    script.write_text("sleep 1000")
    world.fake.submit(JobRequest("7.7.1", job_name(CLUSTER, "7.7.1"), script, world.home.root, 1))
    world.cycle(3)
    assert world.fake.cancelled == []


def test_a_job_id_that_was_given_again_is_somebody_elses_job(world: World) -> None:
    world.cycle()
    job_id = world.job().job_id
    world.fake.give_id_again(job_id)
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(3)
    assert world.fake.cancelled == [] and world.ended("1.1.1")
    assert world.fake.jobs()[job_id].nice == 0 and world.fake.hastened == []


def test_a_job_id_that_was_given_again_is_somebody_elses_job_although_the_listing_lacks_it(world: World) -> None:
    world.cycle()
    job_id = world.job().job_id
    world.fake.give_id_again(job_id)
    world.fake.forgotten.add(job_id)
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(3)
    assert world.fake.cancelled == [] and world.ended("1.1.1")


def test_a_killed_job_that_nobody_tells_of_is_cancelled_once_it_is_known_to_be_the_runs(world: World) -> None:
    world.cycle()
    job_id = world.job().job_id
    world.fake.unseen.add(job_id)
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(3)
    assert world.fake.cancelled == []
    world.fake.unseen.clear()
    world.cycle(2)
    assert world.fake.cancelled == [job_id]


def test_a_killed_job_that_the_listing_lacks_is_cancelled(world: World) -> None:
    world.cycle()
    job_id = world.job().job_id
    world.fake.forgotten.add(job_id)
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(3)
    assert world.fake.cancelled == [job_id] and world.ended("1.1.1")


def test_a_wanted_run_whose_job_id_was_given_again_is_submitted_anew(world: World) -> None:
    world.cycle()
    world.fake.give_id_again(world.job().job_id)
    world.cycle(4)
    assert world.trial().state is State.ACTIVE and world.fake.cancelled == []
    assert [record.state.live for record in world.fake.named("1.1.2")] == [True]


def test_a_job_that_was_handed_over_by_another_run_is_known_by_that_runs_name(world: World) -> None:
    world.cycle()
    carrier = world.job("1.2.1")
    for done, following in (("1.2.1", "1.3.1"), ("1.3.1", "1.1.1")):
        create_once(world.home.run(done).next, {"script": str(world.home.run(following).script)})
    world.ledger.do(events.Submitted("1.1.1", carrier.job_id, T0))
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(2)
    assert carrier.job_id in world.fake.cancelled


# --- stop and kill


def test_a_stop_is_passed_on_once_and_closes_the_run(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    world.ledger.do(events.Pause(1, time.time()))
    world.cycle()
    word = world.stop_word()
    assert word is not None and word["reason"] == world.run().intent_reason == "pause"
    closed = world.home.run("1.1.1").closed
    written = closed.stat().st_mtime_ns
    world.cycle(3)
    assert closed.stat().st_mtime_ns == written
    assert world.run().scheduler_job_id not in world.fake.cancelled, "a stop leaves the job time for a checkpoint"


def test_a_kill_cancels_the_job_once_at_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    job_id = world.job().job_id
    cancelled: list[str] = []
    monkeypatch.setattr(world.fake, "cancel", cancelled.extend)  # its processes take their time
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(4)
    assert cancelled == [job_id]
    world.fake.end(job_id, JobState.CANCELLED, None)
    world.cycle(2)
    assert world.ended("1.1.1") and world.trial().state is State.CANCELED


def test_a_kill_that_the_scheduler_did_not_hear_is_repeated(world: World) -> None:
    world.cycle()
    world.fake.silent = True
    world.ledger.do(events.KillTrial(1, T0))
    world.cycle(2)
    assert world.fake.cancelled == []
    world.fake.silent = False
    world.cycle(2)
    assert world.ended("1.1.1")


def test_the_queued_job_of_a_run_that_has_ended_is_cancelled(world: World) -> None:
    """The scheduler queued it again at the very moment at which it ended."""
    world.cycle()
    world.node_starts()
    world.cycle()
    world.node_ends()
    world.fake.start_again(world.job().job_id, held=True)
    world.cycle(3)
    assert world.ended("1.1.1") and world.fake.cancelled == [world.job().job_id]


# --- queued again


def test_a_job_that_is_queued_again_ends_its_attempt_and_the_run_goes_on(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.node_reports(steps=3)
    world.cycle()
    world.fake.start_again(world.job().job_id, preempted=True, held=True)
    world.cycle()
    assert world.ends["1.1.1", 0] is End.PREEMPTED
    assert world.run().state is RunState.PENDING
    world.node_starts(k=1)
    world.cycle()
    assert (world.run().state, world.run().attempt) == (RunState.RUNNING, 1)


def test_a_node_that_was_given_up_and_trained_to_the_end_has_its_reports_counted(world: World) -> None:
    """Its job was queued again, and then Slurm forgot it: the end report that is there speaks for all that was written before."""
    world.cycle()
    world.node_starts()
    world.node_reports(steps=1)
    world.cycle()
    world.fake.start_again(world.job().job_id, held=True)
    world.cycle()
    world.node_reports(steps=2)
    world.node_ends()
    world.fake.unseen.add(world.job().job_id)
    world.cycle(3)
    assert world.ended() and world.trial().state is State.COMPLETED
    assert world.trial().steps_completed == 2


def test_a_clock_that_is_set_back_keeps_no_unclear_submission_waiting(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()
    world.fake.settle, world.fake.never_arrives = 60.0, True
    world.cycle()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 86400)
    world.cycle()
    monkeypatch.setattr(time, "time", lambda: now - 86400 + 61)
    world.fake.never_arrives = False
    world.cycle(3)
    assert world.run().state is RunState.PENDING


def test_a_held_job_is_let_go_once_for_each_time_that_it_is_queued_again(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    job_id = world.job().job_id
    for times in (1, 2):
        world.fake.start_again(job_id, held=True)
        world.cycle(4)
        assert world.fake.hastened == [job_id] * times


def test_a_job_is_not_let_go_while_its_node_would_refuse_the_next_start(world: World) -> None:
    """Slurm revokes the credential of what it requeues by whole seconds: a start within that second ends the job for good."""
    world.cycle()
    world.node_starts()
    world.cycle()
    job_id = world.job().job_id
    world.fake.start_again(job_id, held=True, ago=-60)  # a second ago, whatever the test takes
    world.cycle(4)
    assert world.fake.hastened == []
    world.fake.queued_ago(job_id, AFTER_REQUEUE)
    world.cycle(4)
    assert world.fake.hastened == [job_id]


@pytest.mark.parametrize("started_again", [False, True])
def test_a_requeued_jobs_node_is_not_judged_by_what_was_said_of_it_before(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch, started_again: bool
) -> None:
    monkeypatch.setattr(Cadence, "poll_is_due", lambda cadence: True)
    world = worlds(trials=1, fastest_poll=NEVER)  # for anybody else the answer before is young enough
    world.cycle()
    world.node_starts()
    world.cycle()
    world.fake.node_state = NodeState.DOWN
    world.fake.start_again(world.job().job_id)
    if started_again:
        world.node_starts(k=1, prior={"0": 0})
    world.cycle()
    assert [failure["kind"] for failure in world.ledger.state.nodes["node1"].failures] == ["went down"]


def test_bells_that_nobody_hears_are_remembered_once_for_each_run(world: World) -> None:
    """A scheduler that does not answer keeps everybody waiting, for hours maybe; runs ring all the time."""
    for n in range(1000):
        world.live.rung("1.1.1", every_attempt=n == 7)
        world.live.rung("1.2.1")
    assert world.live._rung == {"1.1.1": True, "1.2.1": False}
    world.live.take_in()
    assert not world.live._rung
    first, second = (live for id in ("1.1.1", "1.2.1") if (live := world.live.get(id)) is not None)
    assert first.poll_interval.notice and first.poll_interval.every_attempt and second.poll_interval.notice


def test_the_next_attempt_that_has_started_before_anybody_asked_ends_the_one_before(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.node_reports(steps=3)
    world.cycle()
    world.node_starts(k=1, prior={"0": 1})
    world.live.rung("1.1.1", every_attempt=True)
    world.cycle()
    assert (world.run().state, world.run().attempt) == (RunState.RUNNING, 1)


def test_an_attempt_that_starts_after_its_run_was_stopped_and_has_ended_changes_nothing(world: World) -> None:
    """The cycle comes to an end: nobody looks for the next attempt of a run that has just ended."""
    world.cycle()
    world.node_starts()
    world.cycle()
    world.ledger.do(events.Pause(1, time.time()))
    world.node_starts(k=1)
    world.live.rung("1.1.1", every_attempt=True)
    world.cycle()
    assert world.ended("1.1.1") and world.trial().state is State.PAUSED


def test_a_job_that_is_queued_again_after_a_stop_is_cancelled(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    world.ledger.do(events.Pause(1, time.time()))
    world.fake.start_again(world.job().job_id, held=True)
    world.cycle(3)
    assert world.job().job_id in world.fake.cancelled and world.ended("1.1.1")


# --- trouble with one run is that run's alone


def test_a_damaged_claim_stops_its_own_trial_alone(world: World) -> None:
    world.home.run("1.1.1").make()
    world.home.run("1.1.1").claim.write_text("{")
    world.cycle()
    assert world.trial(1).state is State.ACTIVE
    for _ in range(TRIES_TO_WRITE):
        world.cycle()
    assert world.trial(1).state is State.ERROR and "damaged" in world.trial(1).reason
    assert world.run("1.2.1").state is world.run("1.3.1").state is RunState.RUNNING or RunState.PENDING


def test_a_damaged_report_is_said_once_and_keeps_nobody_from_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.cycle()
    world.node_starts("1.1.1")
    world.node_starts("1.2.1")
    world.cycle()
    world.home.run("1.1.1").attempt(0).end.write_text("{")
    world.node_ends("1.2.1")
    world.cycle(4)
    assert world.ended("1.2.1") and not world.ended("1.1.1")
    assert len([record for record in caplog.records if "damaged" in record.getMessage()]) == 1


def test_a_run_whose_directory_is_gone_can_be_killed(tmp_path: Path, worlds: Callable[..., World]) -> None:
    home = Home(tmp_path / "local")
    home.make()
    scheduler, _ = find_scheduler(home, SiteConfig(scheduler="local"))
    world = worlds(scheduler=scheduler)
    world.refusals = {"1.2.1": "no", "1.3.1": "no"}
    world.ledger.do(events.Submitted("1.1.1", "4242", T0))
    world.ledger.do(events.KillTrial(1, T0))
    assert world.run().intent is Intent.KILL
    while not world.ended():
        assert world.run().state is RunState.PENDING
        world.cycle()
    assert world.trial().state is State.CANCELED


def test_a_run_directory_that_cannot_be_written_is_tried_again_and_given_up_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(run: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(world, "_job", failing)
    world.cycle(TRIES_OF_A_DISK - 1)
    assert world.trial().state is State.ACTIVE, "it has had most of an hour by now"
    world.cycle(2)
    assert world.trial().state is State.ERROR and "Input/output error" in world.trial().reason


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_run_directory_for_which_there_is_no_room_waits_as_long_as_it_takes(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(run: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(world, "_job", full)
        world.cycle(2 * TRIES_OF_A_DISK)
        assert world.trial().state is State.ACTIVE
        assert (
            world.run().reason
            == f"there is no room for the run directory: {world.home.run('1.1.1').path}: {os.strerror(code)}"
        )
    world.cycle(2)
    assert world.run().state is RunState.PENDING and world.trial().restarts == 0


# --- what it costs the scheduler


def test_nothing_is_asked_between_two_polls(worlds: Callable[..., World]) -> None:
    world = worlds(fastest_poll=NEVER)
    world.cycle()
    assert world.requests(5) == {}


@pytest.mark.parametrize(("weights", "means"), [(True, "nice"), (False, "cancel")])
def test_a_new_order_in_the_schedulers_queue_costs_one_request_and_is_left_alone_then(
    world: World, weights: bool, means: str
) -> None:
    """By nice; where that moves nothing, who stands in the way is cancelled, and submitted again behind."""
    world.fake.slots, world.fake.weights = 0, weights
    world.cycle(3)
    settled = {"jobs": 1, "nodes": 1}
    assert world.requests() == settled
    world.create(2, 1, priority=1)
    world.cycle(6)
    waiting = [job for job in world.fake.jobs().values() if job.state is JobState.PENDING]
    first = max(waiting, key=lambda job: (job.priority or 0, -int(job.job_id)))
    assert first.name.startswith("2.4.1_") and len(waiting) == 4
    assert {"nice", "cancel"} & world.fake.requests.keys() == {means}
    assert world.fake.requests[means] == 1, "in one request"
    assert world.requests() == settled


def unclear(worlds: Callable[..., World], trials: int, **pace: float) -> World:
    """A master that starts after one that died with ``trials`` submissions unclear; no job can be seen, and none arrives."""
    world = worlds(trials=trials, **pace)
    assert len(world.runs()) == trials
    for run in world.runs():
        world.home.run(run.id).make()
        write_json(world.home.run(run.id).path / SUBMITTING, {"at": time.time()}, durable=False)
    world.fake.never_arrives = True
    world.reconciler = world.start()
    return world


@pytest.mark.parametrize("trials", [1, 16, 1000])
def test_unclear_submissions_cost_the_scheduler_the_same_whatever_their_number(
    worlds: Callable[..., World], trials: int
) -> None:
    world = unclear(worlds, trials)
    world.fake.settle = NEVER
    for _ in range(3):
        assert world.requests() == {"jobs": 1, "nodes": 1}
    world.fake.settle = 0.0  # from now on they are looked up, given up and submitted again, and that is unclear again
    for _ in range(5):
        asked = world.requests()
        assert asked["jobs"] == 1 and sum(asked.values()) <= 4, asked
    assert world.fake.requests["submit"] >= 3, "they are submitted again"


def test_nothing_is_asked_between_two_polls_about_unclear_submissions(worlds: Callable[..., World]) -> None:
    world = unclear(worlds, 16, fastest_poll=NEVER)
    assert world.requests() == {"jobs": 1, "nodes": 1, "find": 1}
    assert world.requests(5).get("submit", 0) <= 1, "after an unclear submission nothing is submitted for a while"
    assert world.requests(5) == {}


def test_the_pause_after_an_unclear_submission_doubles_until_one_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    cadence = Cadence(Pace(fastest_poll=10.0, slowest_poll=60.0))
    paused = []
    for _ in range(5):
        cadence.submission_unclear(SubmitUncertain("sbatch gave no answer"))
        paused.append(cadence._submit_not_before)
    assert paused == [10, 20, 40, 60, 60]
    cadence.submitted()
    cadence.submission_unclear(SubmitUncertain("sbatch gave no answer"))
    assert cadence._submit_not_before == 10


def test_nothing_is_remembered_of_runs_that_have_ended(world: World) -> None:
    for id in ("1.1.1", "1.2.1", "1.3.1"):
        world.cycle(2)
        world.node_starts(id)
        world.cycle()
        world.node_ends(id)
    world.cycle(3)
    assert len(world.live) == 0 and world.trial(3).state is State.COMPLETED
