"""A user whose dethpc is upgraded in the middle of everything: from the release before to the source tree of these tests."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.e2e.conftest import User
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
BEFORE = os.environ.get("DETHPC_UPGRADE_FROM", "91579da2^")
"""A commit: the last one whose rows, records and run directories older masters wrote."""

SEARCHED = '''
"""Reports a loss after each epoch. At epoch 2 it waits for the file "go", or until it is asked to stop."""
import json, os, sys, time
import determined as det

info = det.get_cluster_info()
hparams, epoch = info.trial.hparams, 0
with det.core.init() as core:
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch = json.loads((path / "epoch.json").read_text())
    while epoch < 8:
        epoch += 1
        core.train.report_validation_metrics(epoch, {"loss": abs(hparams["lr"] - 0.01) / epoch, "batches": epoch})
        stop = core.preempt.should_preempt()
        while epoch == 2 and not stop and not os.path.exists(hparams["go"]):
            time.sleep(0.05)
            stop = core.preempt.should_preempt()
        if epoch % 2 == 0 or stop:
            with core.checkpoint.store_path({"steps_completed": epoch}) as (path, uuid):
                (path / "epoch.json").write_text(json.dumps(epoch))
        if stop:
            sys.exit(0)
'''
ASHA = {
    "searcher": {
        "name": "adaptive_asha",
        "metric": "loss",
        "time_metric": "batches",
        "max_time": 8,
        "max_trials": 6,
        "max_concurrent_trials": 3,
        "divisor": 2,
        "max_rungs": 3,
    },
    "entrypoint": "python3 searched.py",
}


def tree_of(commit: str, folder: Path) -> Path:
    """The files of ``commit`` in ``folder``; skips the test in a copy of the repository that does not have it."""
    done = subprocess.run(
        ["git", "archive", commit, "dethpc", "determined", "launchers", "templates"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"this copy of the repository has no commit {commit}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def upgrade_while_a_trial_runs(user: User, before: Path, slots: int) -> None:
    """``slots``: all of the cluster."""
    after, go = user.env["PYTHONPATH"], user.folder / "go"
    user.env["PYTHONPATH"] = str(before)
    user.write("context/searched.py", SEARCHED)
    ended = user.create(hyperparameters={"lr": 0.1, "steps": 20})
    user.det("experiment", "wait", str(ended))
    paused = user.create(hyperparameters={"lr": 0.2, "steps": 30, "hold": 7})
    user.wait_steps(paused, 7)
    user.det("experiment", "pause", str(paused))
    user.wait_state(paused, "PAUSED")
    runs = user.create(hyperparameters={"lr": 0.3, "steps": 60, "hold": 33, "go": str(go)})
    user.wait_steps(runs, 33)
    search = user.create(
        **ASHA, hyperparameters={"lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1}, "go": str(go)}
    )
    wait_until(lambda: sum(user._steps(trial) >= 2 for trial in user.trials(search)) == 3)
    queued = user.create(entrypoint="true", resources={"slots_per_trial": slots}, hyperparameters={})
    listed = [row["id"] for row in user.json("experiment", "list")]
    (job,) = user.runs_of(runs)

    user.env["PYTHONPATH"] = after
    assert listed == [row["id"] for row in user.json("experiment", "list")], (
        "det of the new release, the master of the old"
    )
    user.det("model", "list", code=1)
    assert "not supported yet" in user.errors and "Traceback" not in user.errors
    user.det("master", "check", code=1)
    assert "det master down" in user.errors and "Traceback" not in user.errors
    user.det("master", "down")
    assert listed == [row["id"] for row in user.json("experiment", "list")]
    assert user.experiment(runs)["state"] == "STATE_RUNNING"
    go.touch()
    user.det("experiment", "activate", str(paused))
    for experiment in (runs, paused, search, queued):
        user.det("experiment", "wait", str(experiment))
    before_rebuild = _results(user, ended, paused, runs, search, queued)
    assert user.runs_of(runs) == [job], "the trial went on in its job"
    for experiment, steps in ((ended, 20), (paused, 30), (runs, 60)):
        (trial,) = user.trials(experiment)
        assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, steps + 1))
        saved = user.json("experiment", "list-checkpoints", str(experiment))
        assert {c["metadata"]["steps_completed"] for c in saved} >= set(range(5, steps + 1, 5))
        assert re.findall(r"starting at step (\d+)", user.log(experiment)) == ["0", "7"][: 1 + (experiment == paused)]
    assert len(user.trials(search)) == 6
    _lists_show(user)
    assert user.det("master", "check").startswith("The database and the files agree")
    user.det("master", "down")
    for path in user.home.glob("dethpc.db*"):
        path.unlink()
    user.det("master", "rebuild", "--yes")
    user.det("master", "up")
    assert _results(user, ended, paused, runs, search, queued) == before_rebuild
    for experiment in (ended, paused, runs, search, queued):
        archive = user.folder / f"{experiment}.tar"
        user.det("experiment", "export", str(experiment), str(archive))
        user.det("experiment", "import", str(archive))
    assert len(user.json("experiment", "list")) == 10


def _results(user: User, *experiments: int) -> list[object]:
    results: list[object] = []
    for experiment in experiments:
        assert user.experiment(experiment)["state"] == "STATE_COMPLETED"
        trials = [(t["id"], t["state"], t["hparams"], t["totalBatchesProcessed"]) for t in user.trials(experiment)]
        reports = [[m["metrics"] for g in ("training", "validation") for m in user.metrics(t[0], g)] for t in trials]
        saved = sorted(c["uuid"] for c in user.json("experiment", "list-checkpoints", str(experiment)))
        results.append((experiment, trials, reports, saved))
    return results


def _lists_show(user: User) -> None:
    nouns = ("job", "task", "user", "workspace", "model", "template", "webhook", "token", "user-group", "command")
    for noun in (*nouns, "notebook", "tensorboard", "shell", "agent", "slot", "resource-pool"):
        user.det(noun, "list")
