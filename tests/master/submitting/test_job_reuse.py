"""Which run may take over the job of another one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.log_policies import Noted
from dethpc.domain.facts import Experiment, Run, Task, Trial
from dethpc.domain.states import Intent, RunState, State, TaskKind
from dethpc.engine.state import ClusterState
from dethpc.master.submitting import job_reuse
from dethpc.master.submitting.job_reuse import ReusableJobs
from dethpc.rundir.files import create_once, read_json
from dethpc.rundir.home import Home
from dethpc.rundir.tree import remove
from dethpc.searcher.methods import build

DONE = Run("1.1.1", 1, "1.1", 1, RunState.RUNNING, 0.0, 2, "short", scheduler_job_id="77", attempt=0)
WANTED = Run("1.2.1", 1, "1.2", 1, RunState.SUBMITTING, 0.0, 2, "short")
SCRIPT = Path("/runs/1.2.1/job.sbatch")
GOOD = EndReport(exit_code=0)
CONFIG = {"entrypoint": "train", "searcher": {"name": "single", "metric": "loss"}, "hyperparameters": {}}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.run(DONE.id).make()
    return home


def state(*runs: Run, **priorities: int) -> ClusterState:
    found = ClusterState(build)
    for id, priority in ((1, 42), (2, priorities.get("other", 42))):
        found.apply(Experiment(id, "ada", CONFIG, "", State.ACTIVE, 0.0, 1, queue_id=str(id), priority=priority))
    for run in runs:
        assert run.experiment_id is not None
        kind, queue_id = TaskKind.TRIAL, str(run.experiment_id)
        found.tasks[run.task_id] = Task(run.task_id, kind, queue_id, "ada", State.ACTIVE, 0.0, run.experiment_id)
    found.runs.update({run.id: run for run in runs})
    found.live.pending["short"] = dict(found.runs)
    return found


def test_the_next_run_of_the_experiment_takes_the_job_and_no_second_one_does(home: Home) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(DONE, GOOD)
    assert reusable.take(WANTED, state(WANTED), SCRIPT) == "77"
    assert read_json(home.run(DONE.id).next) == {"script": str(SCRIPT)}
    assert reusable.take(WANTED, state(WANTED), SCRIPT) is None


@pytest.mark.parametrize(
    ("done", "report", "wanted"),
    [
        (replace(DONE, pool="plain"), GOOD, replace(WANTED, pool="plain")),  # a pool that does not ask for it
        (replace(DONE, attempt=1), GOOD, WANTED),  # started again
        (replace(DONE, started_at=time.time() - 1300), GOOD, WANTED),  # lasted long enough
        (DONE, EndReport(exit_code=1), WANTED),
        (replace(DONE, intent=Intent.KILL), GOOD, WANTED),  # its job may be on its way out
        (DONE, EndReport(exit_code=0, stop_reason="time_limit"), WANTED),
        (DONE, EndReport(exit_code=0, stop_reason="preempted"), WANTED),
        (DONE, GOOD, replace(WANTED, experiment_id=2)),
        (DONE, GOOD, replace(WANTED, slots=4)),
    ],
)
def test_others_do_not(home: Home, done: Run, report: EndReport, wanted: Run) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(done, report)
    assert reusable.take(wanted, state(wanted), SCRIPT) is None


def test_a_job_that_is_about_to_end_does_not_wait_for_another_run(home: Home) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(DONE, EndReport(exit_code=0, stop_reason="preempted"))
    reusable.release()
    assert read_json(home.run(DONE.id).next) == {"script": None}


def test_a_job_is_as_old_as_its_first_run(home: Home) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(replace(DONE, started_at=time.time() - 600), GOOD)
    assert reusable.take(WANTED, state(WANTED), SCRIPT) == "77"
    reusable._pools = {"short": 300.0}  # now the job is old, though its second run is young
    reusable.offer(replace(WANTED, scheduler_job_id="77", attempt=0, started_at=time.time()), GOOD)
    assert reusable.take(replace(WANTED, id="1.3.1", task_id="1.3"), state(WANTED), SCRIPT) is None


def test_a_more_urgent_experiment_that_waits_comes_first(home: Home) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(DONE, GOOD)
    other = Run("2.1.1", 2, "2.9", 1, RunState.PENDING, 0.0, 1, "short")
    assert reusable.take(WANTED, state(WANTED, other, other=1), SCRIPT) is None
    assert reusable.take(WANTED, state(WANTED, other, other=42), SCRIPT) == "77"


def test_a_job_on_a_node_that_the_log_of_the_trial_excludes_is_not_for_it(home: Home) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(replace(DONE, nodes=["n0"]), GOOD)
    known = state(WANTED)
    known.tasks[WANTED.task_id] = replace(known.tasks[WANTED.task_id], trial_id=2)
    for nodes, job in ((("n1", "n0"), None), (("n1",), "77")):
        known.apply(Trial(2, 1, 0, {}, 7, State.ACTIVE, 0.0, search=Noted("", nodes).into({})))
        assert reusable.take(WANTED, known, SCRIPT) == job


def test_a_job_that_has_ended_already_takes_nothing(home: Home) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(DONE, GOOD)
    create_once(home.run(DONE.id).next, {"script": None})
    assert reusable.take(WANTED, state(WANTED), SCRIPT) is None


def test_a_job_whose_trial_is_folded_takes_nothing_and_need_not_be_told(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_reuse, "PATIENCE", 0.0)
    for report in (GOOD, GOOD._replace(exit_code=1)):
        reusable = ReusableJobs(home, {"short": 1200.0})
        home.run(DONE.id).make()
        reusable.offer(DONE, report)
        remove(home.run(DONE.id).path)
        assert report is not GOOD or reusable.take(WANTED, state(WANTED), SCRIPT) is None
        reusable.offer(DONE, report)
        time.sleep(0.01)
        reusable.release()
        assert not home.run(DONE.id).path.exists()


def test_a_job_for_which_nothing_comes_is_let_go(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    reusable = ReusableJobs(home, {"short": 1200.0})
    reusable.offer(DONE, GOOD)
    reusable.release()
    assert read_json(home.run(DONE.id).next) is None
    monkeypatch.setattr(job_reuse, "PATIENCE", 0.0)
    reusable.release()
    assert read_json(home.run(DONE.id).next) == {"script": None}
