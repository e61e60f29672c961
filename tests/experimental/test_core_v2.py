"""The Core API outside the cluster: a script as a user writes it, in a process of its own, against a real master."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.reports import ReportKind
from tests.master.conftest import Served
from tests.waiting import LONG_ENOUGH, wait_until

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys, time
import determined as det
from determined import core
from determined.experimental import core_v2
config = core_v2.Config(name="outside", hparams={"lr": 0.1}, searcher={"name": "single", "metric": "loss"},
                        external_experiment_id="my e", external_trial_id="t", checkpoint_storage=sys.argv[1])
"""

TRAIN = """
with core_v2.init_context(config=config) as context:
    begin = context.info.trial._steps_completed
    if context.info.latest_checkpoint:
        with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
            assert (path / "w").read_text() == str(begin)
    for step in range(begin + 1, begin + 4):
        context.train.report_training_metrics(step, {"loss": 1 / step})
        context.train.report_progress(step / 6)
        assert not context.preempt.should_preempt()
    context.train.report_validation_metrics(step, {"loss": 1 / step})
    context.train.set_metadata({"at": step})
    context.alert("half", "way")
    print("said aloud", step)
    with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
        (path / "w").write_text(str(step))
"""


def run(served: Served, tmp_path: Path, body: str, code: int = 0) -> str:
    process = start(served, tmp_path, body)
    out, err = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == code, err
    return out + err


def start(served: Served, tmp_path: Path, body: str, **extra: str) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("DET")}
    env.update(
        PYTHONPATH=str(ROOT),
        DET_MASTER=served.url,
        DET_USER_TOKEN=served.token,
        DETHPC_HOME=str(tmp_path / "home-of-script"),
        TMPDIR=str(tmp_path),
        **extra,
    )
    command = [sys.executable, "-c", SCRIPT + body, str(tmp_path / "storage")]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def get(served: Served, path: str) -> Any:
    return served.session.get(f"/api/v1/{path}")


def test_a_script_reports_and_goes_on_when_it_starts_again(served: Served, tmp_path: Path) -> None:
    for _ in range(2):
        assert "said aloud" in run(served, tmp_path, TRAIN)
    trial = get(served, "trials/1")["trial"]
    assert (trial["state"], trial["totalBatchesProcessed"], trial["hparams"]) == ("STATE_COMPLETED", 6, {"lr": 0.1})
    checkpoints = get(served, "trials/1/checkpoints")["checkpoints"]
    assert [c["metadata"]["steps_completed"] for c in checkpoints] == [3, 6]
    assert get(served, "runs/1/metadata") == {"metadata": {"at": 6}}
    logs = [line["message"] for line in served.session.stream("/api/v1/trials/1/logs")]
    assert sum("said aloud" in line for line in logs) == 2
    assert len(get(served, "trials/1/workloads")["workloads"]) == 6 + 2 + 2
    assert list((tmp_path / "storage").rglob("*tfevents*"))


def test_every_worker_may_report(served: Served, tmp_path: Path) -> None:
    body = """
import os
rank = int(os.environ["RANK"])
both = core.DistributedContext(rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1)
with core_v2.init_context(config=config, distributed=both) as context:
    for step in (1, 2):
        context.train.report_metrics(f"of {rank}", step, {"loss": rank})
    both.allgather(None)
"""
    workers = [start(served, tmp_path, body, RANK=str(rank)) for rank in (0, 1)]
    for worker in workers:
        _, err = worker.communicate(timeout=LONG_ENOUGH)
        assert worker.returncode == 0, err
    wanted = {"trialIds": 1}
    found = served.session.stream("/api/v1/trials/metrics/trial_metrics", wanted)
    reports = [
        (r["group"], r["totalBatches"], r["metrics"]["avg_metrics"]) for batch in found for r in batch["metrics"]
    ]
    assert sorted(reports) == [(f"of {rank}", step, {"loss": rank}) for rank in (0, 1) for step in (1, 2)]


def test_the_singleton_style(served: Served, tmp_path: Path) -> None:
    body = """
core_v2.init(config=core_v2.Config(name="alone", checkpoint_storage=sys.argv[1]))
core_v2.train.report_training_metrics(1, {"loss": 0.5})
assert core_v2.url_reverse_webui_exp_view().endswith("/det/experiments/1")
core_v2.init(config=core_v2.Config(name="another", checkpoint_storage=sys.argv[1]))
core_v2.train.report_training_metrics(2, {"loss": 0.5})
"""
    run(served, tmp_path, body)
    experiments = get(served, "experiments")["experiments"]
    assert [(e["name"], e["state"]) for e in experiments] == [
        ("alone", "STATE_COMPLETED"),
        ("another", "STATE_COMPLETED"),
    ]


@pytest.mark.parametrize(
    ("end", "code", "state"),
    [("raise ValueError('no')", 1, "ERROR"), ("sys.exit(0)", 0, "COMPLETED"), ("sys.exit(3)", 3, "ERROR")],
)
def test_the_trial_ends_as_the_script_does(served: Served, tmp_path: Path, end: str, code: int, state: str) -> None:
    run(served, tmp_path, f"with core_v2.init_context(config=config) as context:\n    {end}\n", code)
    assert get(served, "trials/1")["trial"]["state"] == f"STATE_{state}"


@pytest.mark.parametrize(
    ("end", "code", "state"),
    [
        ("raise ValueError('no')", 1, "ERROR"),
        ("sys.exit(3)", 3, "ERROR"),
        ("sys.exit()", 0, "COMPLETED"),
    ],
)
def test_the_singleton_ends_as_its_program_does(
    served: Served, tmp_path: Path, end: str, code: int, state: str
) -> None:
    run(served, tmp_path, f"core_v2.init(config=config)\n{end}\n", code)
    assert get(served, "trials/1")["trial"]["state"] == f"STATE_{state}"


def test_invalid_hyperparameters_that_end_the_singletons_program_are_told(served: Served, tmp_path: Path) -> None:
    run(served, tmp_path, "core_v2.init(config=config)\nraise det.InvalidHP('lr')\n", 1)
    trial = get(served, "trials/1")["trial"]
    assert trial["state"] == "STATE_ERROR" and "invalid hyperparameters" in trial["reason"]


def test_invalid_hyperparameters_are_no_error_of_the_script(served: Served, tmp_path: Path) -> None:
    run(served, tmp_path, "with core_v2.init_context(config=config) as context:\n    raise det.InvalidHP('lr')\n")
    trial = get(served, "trials/1")["trial"]
    assert trial["state"] == "STATE_ERROR" and "invalid hyperparameters" in trial["reason"]


def test_a_killed_trial_is_told_to_the_script(served: Served, tmp_path: Path) -> None:
    body = """
with core_v2.init_context(config=config) as context:
    for step in range(100000):
        context.train.report_training_metrics(step, {"loss": 1.0})
        time.sleep(0.01)
"""
    process = start(served, tmp_path, body)

    def has_reported() -> bool:
        """The experiment comes to be before its trial."""
        begun = get(served, "experiments")["experiments"] and get(served, "experiments/1/trials")["trials"]
        return bool(begun and get(served, "trials/1/workloads")["workloads"])

    wait_until(has_reported)
    served.session.post("/api/v1/trials/1/kill")
    _, err = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == 1 and "killed by a user" in err
    assert get(served, "trials/1")["trial"]["state"] == "STATE_CANCELED"


def test_reports_wait_for_a_master_that_is_away(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dethpc.client.session import Session
    from dethpc.core._rest import UnmanagedReporter

    put = {"config": "name: x\n", "unmanaged": True}
    id = served.session.post("/api/v1/experiments", put)["experiment"]["id"]
    trial = served.session.post("/api/v1/trials", {"experimentId": id, "unmanaged": True})["trial"]
    begun = served.session.post(f"/api/v1/trials/{trial['id']}/start", {})
    session = Session(served.url, served.token, retries=0)
    reporter = UnmanagedReporter(session, trial["id"], begun["trialRunId"], trial["taskId"])
    away = Session("http://127.0.0.1:9", served.token, retries=0)
    reporter._session = away
    reporter.start()
    for step in (1, 2, 3):
        reporter.report(ReportKind.METRICS, {"group": "training", "steps_completed": step, "metrics": {"loss": 1.0}})
    time.sleep(0.1)
    reporter._session = session
    reporter.close()
    reporter.end("COMPLETED")
    found = get(served, f"trials/{trial['id']}/workloads")["workloads"]
    assert [one["training"]["totalBatches"] for one in found] == [1, 2, 3]
    assert get(served, f"trials/{trial['id']}")["trial"]["state"] == "STATE_COMPLETED"
