"""Unmanaged experiments: a script outside the cluster reports over the REST API."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.facts import Experiment, Run
from dethpc.domain.states import AttemptState, RunState, State
from dethpc.engine import events
from dethpc.engine.fold import fold
from dethpc.errors import ConfigError, NotFound, Refused
from dethpc.master.daemon import Daemon
from dethpc.master.experiments.unmanaged import WAIT_OF_EACH, Unmanaged, config_of
from dethpc.master.http.nouns.checkpoints import storage_id
from dethpc.master.rebuild import recreate
from dethpc.master.scheduler import find_scheduler
from dethpc.rundir.journal import JournalWriter
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import open_store, queries
from tests.master.conftest import Published, Served
from tests.state.reading import metrics
from tests.waiting import LONG_ENOUGH, wait_until

CONFIG = "name: outside\nsearcher: {name: custom, metric: loss, smaller_is_better: false}\nworkspace: null\n"


def begin(
    served: Served, external: str = "trial", *, experiment: str = "experiment", resume: bool = True
) -> dict[str, Any]:
    put = {"config": CONFIG, "unmanaged": True}
    found = served.session.put(f"/api/v1/experiments/by-external-id/{experiment}", put)["experiment"]
    new = {"experimentId": found["id"], "hparams": {"lr": 0.5}, "unmanaged": True}
    trial = served.session.put("/api/v1/trials", {"createTrialRequest": new, "externalTrialId": external})["trial"]
    begun = served.session.post(f"/api/v1/trials/{trial['id']}/start", {"trialId": trial["id"], "resume": resume})
    return {"experiment": found["id"], "trial": trial["id"], "task": trial["taskId"], **begun}


def report(served: Served, begun: dict[str, Any], steps: int, value: float, group: str = "validation") -> None:
    metrics = {"metrics": {"avgMetrics": {"loss": value}}, "stepsCompleted": steps, "trialRunId": begun["trialRunId"]}
    path = f"/api/v1/trials/{begun['trial']}/metrics"
    served.session.post(path, {"metrics": {**metrics, "trialId": begun["trial"]}, "group": group})


def store(served: Served, begun: dict[str, Any], uuid: str, steps: int) -> None:
    body = {"uuid": uuid, "taskId": begun["task"], "metadata": {"steps_completed": steps}, "resources": {"w": "3"}}
    served.session.post("/api/v1/checkpoints", {**body, "training": {}, "state": "STATE_COMPLETED"})


def patch(served: Served, begun: dict[str, Any], state: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = served.session.patch(f"/api/v1/trials/{begun['trial']}", {"state": f"STATE_{state}"})[
        "trial"
    ]
    return answer


def steps_of(served: Served, begun: dict[str, Any]) -> list[int]:
    found = served.session.get(f"/api/v1/trials/{begun['trial']}/workloads")["workloads"]
    return [one["validation"]["totalBatches"] for one in found if one.get("validation")]


def test_a_report_that_meets_the_chiefs_last_word_on_its_way_counts(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin(served)
    ledger = served.daemon.ledger
    busy, go_on, arrived = threading.Event(), threading.Event(), threading.Event()

    def hold() -> events.Event:
        busy.set()
        assert go_on.wait(LONG_ENOUGH)
        raise Refused("nothing to do")

    def begin_report(self: Unmanaged, *words: Any) -> Any:
        arrived.set()
        return asked(self, *words)

    asked = Unmanaged.begin_report
    monkeypatch.setattr(Unmanaged, "begin_report", begin_report)
    with ThreadPoolExecutor() as clients:
        held = clients.submit(ledger.do_after, hold)
        assert busy.wait(LONG_ENOUGH)
        chief = clients.submit(patch, served, begun, "COMPLETED")
        wait_until(lambda: len(ledger._wishes) == 1)
        other = clients.submit(report, served, begun, 7, 0.25)
        assert arrived.wait(LONG_ENOUGH)
        go_on.set()
        assert isinstance(held.exception(LONG_ENOUGH), Refused)
        chief.result(LONG_ENOUGH)
        other.result(LONG_ENOUGH)
    assert [row.steps_completed for row in metrics(served.daemon.store, [begun["trial"]])] == [7]


def test_reports_wait_for_company_and_what_decisions_follow_from_does_not(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more runs there are, the longer: who is alone does not wait for nobody."""
    first, second = begin(served), begin(served, "second")
    within: list[float] = []
    post = served.daemon.ledger.post

    def noting(event: events.Event, patience: float = 0.0) -> Any:
        if isinstance(event, events.Reported):
            within.append(patience)
        return post(event, patience)

    monkeypatch.setattr(served.daemon.ledger, "post", noting)
    report(served, first, 1, 0.5, "training")
    report(served, first, 1, 0.5)
    patch(served, second, "COMPLETED")
    within[2:] = []
    report(served, first, 2, 0.5, "training")
    assert within == [pytest.approx(2 * WAIT_OF_EACH), 0.0, pytest.approx(WAIT_OF_EACH)]


def test_a_trial_reports_and_completes(served: Served) -> None:
    begun = begin(served)
    assert (begun["trialRunId"], begun["stepsCompleted"], begun.get("latestCheckpoint")) == (1, 0, None)
    assert patch(served, begun, "RUNNING")["state"] == "STATE_RUNNING"
    report(served, begun, 1, 0.5)
    report(served, begun, 2, 0.7)
    report(served, begun, 1, 4.0, "my own")
    store(served, begun, "c-1", 2)
    served.session.post(f"/api/v1/trials/{begun['trial']}/progress", {"progress": 0.5, "is_raw": True})
    served.session.post(f"/api/v1/trials/{begun['trial']}/runner/metadata", {"state": "thinking"})
    served.session.post(f"/api/v1/runs/{begun['trial']}/metadata", {"metadata": {"who": "me"}})
    served.session.post("/task-logs", [{"task_id": begun["task"], "rank": "0", "log": "hello\n"}])
    done = patch(served, begun, "COMPLETED")
    assert (done["state"], done["searcherMetricValue"], done["runnerState"]) == ("STATE_COMPLETED", 0.7, "thinking")
    assert served.session.get(f"/api/v1/runs/{begun['trial']}/metadata") == {"metadata": {"who": "me"}}
    (line,) = served.session.stream(f"/api/v1/trials/{begun['trial']}/logs")
    assert line["message"].endswith("[rank=0] || INFO: hello\n")
    experiment = served.session.get(f"/api/v1/experiments/{begun['experiment']}")["experiment"]
    assert (experiment["state"], experiment["unmanaged"], experiment["name"]) == ("STATE_COMPLETED", True, "outside")
    report(served, begun, 3, 4.0)  # of a worker that the chief did not wait for
    assert steps_of(served, begun) == [1, 2, 3]
    found = served.session.get(f"/api/v1/trials/{begun['trial']}")["trial"]
    assert (found["searcherMetricValue"], found["state"]) == (0.7, "STATE_COMPLETED")


def test_a_trial_that_starts_again_goes_on_from_its_checkpoint(served: Served) -> None:
    first = begin(served)
    for step in (1, 2, 3):
        report(served, first, step, step)
        if step == 2:
            store(served, first, "c-2", 2)
    patch(served, first, "ERROR")
    second = begin(served)
    assert (second["experiment"], second["trial"], second["trialRunId"]) == (first["experiment"], first["trial"], 2)
    assert (second["latestCheckpoint"], second["stepsCompleted"]) == ("c-2", 2)
    assert steps_of(served, second) == [1, 2]
    report(served, second, 3, 30)
    assert steps_of(served, second) == [1, 2, 3]
    with pytest.raises(Refused, match="started again"):
        report(served, first, 4, 1)
    patch(served, second, "COMPLETED")
    third = begin(served, resume=False)
    assert (third["trialRunId"], third["stepsCompleted"], third.get("latestCheckpoint")) == (3, 0, None)
    assert steps_of(served, third) == []


def test_trials_of_one_external_experiment_come_one_after_the_other(served: Served) -> None:
    begun = [begin(served, external) for external in ("a", "b", "a")]
    assert [one["trial"] for one in begun] == [1, 2, 1] and {one["experiment"] for one in begun} == {1}
    for one in begun[1:]:
        patch(served, one, "COMPLETED")
    assert begin(served, "c")["experiment"] == 1
    assert served.session.get("/api/v1/experiments/1")["experiment"]["state"] == "STATE_RUNNING"


def test_external_ids_are_in_answers_and_find_their_trial(served: Served) -> None:
    begun = begin(served, "mine/b", experiment="mine")
    other = begin(served, "b", experiment="mine/too")
    for one, ids in ((begun, ("mine", "mine/b")), (other, ("mine/too", "b"))):
        found = served.session.get("/api/v1/trials/by-external-id/" + "/".join(ids))["trial"]
        assert (found["id"], found["externalTrialId"]) == (one["trial"], ids[1])
        experiment = served.session.get(f"/api/v1/experiments/{one['experiment']}")["experiment"]
        assert (experiment["externalExperimentId"], experiment["externalTrialId"]) == ids
    with pytest.raises(NotFound, match="mine/nobody"):
        served.session.get("/api/v1/trials/by-external-id/mine/nobody")


def test_the_external_id_of_a_deleted_experiment_makes_a_new_one(served: Served) -> None:
    begun = begin(served)
    patch(served, begun, "COMPLETED")
    served.delete(begun["experiment"])
    again = begin(served)
    assert (again["experiment"], again["trial"]) == (begun["experiment"] + 1, begun["trial"] + 1)


def test_another_trials_checkpoint_is_not_taken_over(served: Served) -> None:
    one, other = begin(served), begin(served, "other")
    store(served, one, "c-1", 1)
    with pytest.raises(Refused, match=f"checkpoint c-1 is trial {one['trial']}'s"):
        store(served, other, "c-1", 2)
    assert served.session.get("/api/v1/checkpoints/c-1")["checkpoint"]["training"]["trialId"] == one["trial"]
    store(served, one, "c-1", 3)


def test_checkpoints_in_one_place_have_one_storage_id(served: Served) -> None:
    begun = begin(served)
    store(served, begun, "c-1", 1)
    store(served, begun, "c-2", 2)
    found = [served.session.get(f"/api/v1/checkpoints/c-{n}")["checkpoint"]["storageId"] for n in (1, 2)]
    announced = served.session.post("/api/v1/runs/start", {"runId": begun["trial"]})["storageId"]
    assert {*found, announced} == {announced} and 0 < announced < 2**31
    place = {"type": "shared_fs", "host_path": "/data", "storage_path": "mine"}
    ids = [
        storage_id(one)
        for one in (
            place,
            {**place, "save_trial_best": 3},
            {**place, "host_path": "/other"},
            {"type": "s3", "bucket": "b"},
            {},
        )
    ]
    assert ids[0] == ids[1] and len(set(ids)) == 4 and ids[4] is None


def test_an_owner_cancels_and_kills_but_cannot_pause(served: Served) -> None:
    begun = begin(served)
    with pytest.raises(Refused, match="unmanaged"):
        served.session.post(f"/api/v1/experiments/{begun['experiment']}/pause")
    served.session.post(f"/api/v1/experiments/{begun['experiment']}/cancel")
    wait_until(lambda: patch_state(served, begun) == "STATE_CANCELED")
    with pytest.raises(Refused):
        patch(served, begun)
    other = begin(served, experiment="other")
    served.session.post(f"/api/v1/trials/{other['trial']}/kill")
    wait_until(lambda: patch_state(served, other) == "STATE_CANCELED")


def test_a_report_that_comes_as_its_run_ends_leaves_no_journal_open(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmanaged = served.daemon.services.unmanaged
    begun = begin(served)
    report(served, begun, 1, 1.0)
    path = served.daemon.installation.home.run(f"{begun['experiment']}.{begun['trial']}.1").attempt(0).journal
    run = unmanaged._run(begun["trial"])
    patch(served, begun, "ERROR")
    monkeypatch.setattr(unmanaged, "_run", lambda *_: run)  # as it was a moment before
    report(served, begun, 2, 2.0)
    monkeypatch.undo()
    patch(served, begin(served, "another"), "COMPLETED")
    assert not is_open(path)
    assert steps_of(served, begun) == [1]


def is_open(path: Path) -> bool:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(link) == str(path):
                return True
    return False


def patch_state(served: Served, begun: dict[str, Any]) -> str:
    return str(served.session.get(f"/api/v1/trials/{begun['trial']}")["trial"]["state"])


def test_what_should_be_a_number_and_is_none_is_refused(served: Served) -> None:
    begun = begin(served)
    checkpoint = {"uuid": "c", "taskId": begun["task"], "training": {}, "state": "STATE_COMPLETED"}
    for path, body in [
        ("/task-logs", [{"task_id": begun["task"], "rank": "first", "log": "hello"}]),
        ("/api/v1/checkpoints", {**checkpoint, "metadata": {"steps_completed": float("nan")}, "resources": {}}),
        ("/api/v1/checkpoints", {**checkpoint, "metadata": {"steps_completed": 1}, "resources": {"w": "big"}}),
    ]:
        with pytest.raises(Refused, match="must be a whole number"):
            served.session.post(path, body)


@pytest.mark.parametrize("steps", [-1, 10**20])
def test_a_report_that_would_count_for_nothing_is_refused_and_in_no_journal(served: Served, steps: int) -> None:
    begun = begin(served)
    report(served, begun, 1, 0.5)
    with pytest.raises(Refused, match="cannot be reported: .*steps_completed"):
        report(served, begun, steps, 0.5)
    report(served, begun, 2, 0.25)
    assert steps_of(served, begun) == [1, 2]
    (journal,) = served.daemon.installation.home.runs.rglob("journal.jsonl")
    assert journal.read_text().count("steps_completed") == 2


def test_an_invalid_hp_ends_the_trial_as_such(served: Served) -> None:
    begun = begin(served)
    served.session.post(f"/api/v1/trials/{begun['trial']}/early_exit", {"reason": "EXITED_REASON_INVALID_HP"})
    assert patch(served, begun, "COMPLETED")["state"] == "STATE_ERROR"


def test_a_silent_script_is_taken_for_dead(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dethpc.master.experiments.unmanaged.SILENCE", 0.2)
    begun = begin(served)
    served.daemon.services.unmanaged.start()
    try:
        trial = wait_until(lambda: (t := trial_row(served, begun)).state is State.ERROR and t)
        assert "reported nothing" in trial.reason
    finally:
        served.daemon.services.unmanaged.stop()


def trial_row(served: Served, begun: dict[str, Any]) -> Any:
    with served.daemon.store.read() as connection:
        return queries.trial(connection, begun["trial"])


def test_what_only_the_journal_knows_is_applied_at_the_next_start(served: Served) -> None:
    begun = begin(served)
    report(served, begun, 1, 1.0)
    served.daemon.services.unmanaged.stop()
    path = served.daemon.installation.home.run(f"{begun['experiment']}.{begun['trial']}.1").attempt(0).journal
    with JournalWriter(path) as journal:
        journal.append("metrics", {"group": "validation", "steps_completed": 2, "metrics": {"loss": 2.0}})
    again = Unmanaged(served.daemon.parts)
    again.start()
    try:
        assert steps_of(served, begun) == [1, 2]
    finally:
        again.stop()


def test_memory_is_a_fold_of_the_rows_and_the_database_can_be_made_again(served: Served, tmp_path: Path) -> None:
    begun = begin(served)
    report(served, begun, 1, 1.0)
    patch(served, begun, "COMPLETED")
    begun = begin(served)
    report(served, begun, 2, 3.0)
    daemon = served.daemon
    folded = fold(build_searcher, daemon.store.load())
    assert folded.runs == daemon.ledger.state.runs and folded.attempts == daemon.ledger.state.attempts
    assert folded.experiments[1].trials == daemon.ledger.state.experiments[1].trials
    with open_store(tmp_path / "again.db") as again:
        assert recreate(daemon.installation.home, again).rows[Experiment] == 1
        assert [m.steps_completed for m in metrics(again, [1])] == [
            m.steps_completed for m in metrics(daemon.store, [1])
        ]
        with again.read() as connection:
            assert [run.state for run in queries.runs_of_trial(connection, 1)] == [RunState.ENDED, RunState.RUNNING]
            assert {a.state for a in queries.attempts_of_trial(connection, 1)} == {
                AttemptState.ENDED,
                AttemptState.RUNNING,
            }


def test_an_experiment_that_ended_before_the_master_started_is_found_again(served: Served) -> None:
    begun = begin(served)
    report(served, begun, 1, 1.0)
    store(served, begun, "c-1", 1)
    patch(served, begun, "COMPLETED")
    daemon = served.daemon
    daemon.ledger.state = fold(build_searcher, daemon.store.load())  # as after a start
    assert not daemon.ledger.state.experiments
    again = begin(served)
    assert (again["trial"], again["latestCheckpoint"], again["trialRunId"]) == (begun["trial"], "c-1", 2)
    with pytest.raises(NotFound):
        served.session.post("/api/v1/trials/77/start", {})


def test_a_trial_that_starts_again_after_a_restart_is_in_the_change_log(served: Served, tmp_path: Path) -> None:
    begun = begin(served)
    report(served, begun, 1, 1.0)
    patch(served, begun, "COMPLETED")
    last = served.daemon
    last.ledger.stop()
    last.lease.release()
    at = last.installation
    scheduler, pace = find_scheduler(at.home, at.site)
    daemon = Daemon(at.home, at.site, scheduler, at.cluster_id, pace)
    daemon.ledger.start()
    try:
        with daemon.store.read() as connection:
            found = queries.experiment(connection, 1)
        daemon.ledger.do(events.LoadExperiment(found))
        daemon.services.unmanaged.begin(begun["trial"], resume=True)
    finally:
        daemon.ledger.stop()
        daemon.lease.release()
        daemon.store.close()
    with open_store(tmp_path / "again.db") as again:
        assert recreate(at.home, again).rows[Experiment] == 1
        assert again.load() == last.store.load()
        assert [run.number for run in again.load().of(Run)] == [1, 2]


SCRIPT = """
import sys
from determined.experimental import core_v2
def main():
    config = core_v2.Config(name="outside", hparams={"lr": 0.1}, searcher={"name": "single", "metric": "loss"},
                            external_experiment_id="e", external_trial_id="t", checkpoint_storage=sys.argv[1])
    mode = core_v2.TensorboardMode.MANUAL  # the other one needs torch or tensorflow
    with core_v2.init_context(config=config, tensorboard_mode=mode) as context:
        begin = context.info.trial._steps_completed
        latest = context.info.latest_checkpoint
        if latest:
            with context.checkpoint.restore_path(latest) as path:
                assert (path / "w").read_text() == str(begin)
        for step in range(begin + 1, begin + 4):
            context.train.report_training_metrics(step, {"loss": 1 / step})
            context.train.report_progress(step / 6)
        context.train.report_validation_metrics(step, {"loss": 1 / step})
        context.train.set_metadata({"at": step})
        print("said aloud", step)
        with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            (path / "w").write_text(str(step))
        assert context.train.get_experiment_best_validation() in (None, 1 / 3, 1 / 6)
main()
"""


def test_the_published_core_v2_works_unmodified_and_resumes(published: Published, tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [published.venv / "bin" / "python", "-c", SCRIPT, str(tmp_path / "storage")],
            env=published.env,
            cwd=published.folder,
            capture_output=True,
            text=True,
            timeout=LONG_ENOUGH,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    session = published.served.session
    trial = session.get("/api/v1/trials/1")["trial"]
    assert (trial["state"], trial["totalBatchesProcessed"], trial["hparams"]) == ("STATE_COMPLETED", 6, {"lr": 0.1})
    checkpoints = session.get("/api/v1/trials/1/checkpoints")["checkpoints"]
    assert [c["metadata"]["steps_completed"] for c in checkpoints] == [3, 6]
    assert all((tmp_path / "storage" / c["uuid"] / "w").exists() for c in checkpoints)
    logs = [line["message"] for line in session.stream("/api/v1/trials/1/logs")]
    assert any(line.endswith("said aloud 6\n") for line in logs)
    assert session.get("/api/v1/runs/1/metadata") == {"metadata": {"at": 6}}


def test_aliases_that_unfold_into_gigabytes_are_refused() -> None:
    bomb = "hyperparameters:\n  a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    bomb += "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(ConfigError, match="more than 100,000 values"):
        config_of("name: n\n" + bomb)
