"""From ``det experiment create`` to the end, through the real master and real processes on this machine."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.cli import master_process
from tests.waiting import LONG_ENOUGH

CONFIG = """\
name: tiny
entrypoint: python3 train.py
max_restarts: 0
resources: {slots_per_trial: 1}
searcher: {name: grid, metric: loss, smaller_is_better: true}
hyperparameters:
  lr: {type: categorical, vals: [0.5, 0.25]}
"""

TRAIN = """\
import pathlib
import determined as det

info = det.get_cluster_info()
lr = info.trial.hparams["lr"]
with det.core.init() as context:
    for step in (1, 2, 3):
        context.train.report_training_metrics(steps_completed=step, metrics={"loss": lr + 1 / step})
    context.train.report_validation_metrics(steps_completed=3, metrics={"loss": lr})
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, uuid):
        (pathlib.Path(path) / "weights.txt").write_text(str(lr))
    print("trained with", lr)
"""


@pytest.fixture
def det_here(det: Any, environment: dict[str, str], tmp_path: Path) -> Iterator[Any]:
    """``det`` with a master of its own, which is stopped at the end."""
    code = tmp_path / "code"
    code.mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG)
    (code / "train.py").write_text(TRAIN)
    yield det
    pid = int(master_process.read_master_file(Path(environment["DETHPC_HOME"])).get("pid") or 0)
    if pid:
        os.kill(pid, signal.SIGTERM)
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            time.sleep(0.05)


def test_an_experiment_from_create_to_download(det_here: Any, tmp_path: Path) -> None:
    det = det_here
    created = det("experiment", "create", "config.yaml", "code", "--follow", timeout=LONG_ENOUGH)
    assert created.returncode == 0, created.stderr
    assert created.stdout.startswith("Created experiment 1\n")
    assert "trained with" in created.stdout

    waited = det("experiment", "wait", 1, "--polling-interval", 0.2, timeout=LONG_ENOUGH)
    assert waited.returncode == 0, waited.stdout + waited.stderr
    assert waited.stdout.splitlines()[-1].startswith("experiment 1: COMPLETED")

    best, other = json.loads(det("experiment", "list-trials", 1, "--sort", "metric", "--json").stdout)
    assert (best["hparams"], other["hparams"]) == ({"lr": 0.25}, {"lr": 0.5})
    assert best["searcherMetricValue"] == 0.25 and best["totalBatchesProcessed"] == 3
    table = det("e", "lt", 1, "--best", 1).stdout.splitlines()
    assert len(table) == 2 and table[1].split()[:4] == [str(best["id"]), "COMPLETED", "3", "0.25"]

    described = det("experiment", "describe", 1).stdout
    assert "COMPLETED" in described and "tiny" in described and "100%" in described
    trial = det("trial", "describe", best["id"]).stdout
    assert "loss=0.25" in trial and "checkpoint" in trial

    last = det("trial", "logs", best["id"], "--search", "trained").stdout.splitlines()
    assert len(last) == 1 and last[0].endswith("trained with 0.25")

    [checkpoint] = json.loads(det("experiment", "list-checkpoints", 1, "--best", 1, "--json").stdout)
    downloaded = det("checkpoint", "download", checkpoint["uuid"], "-o", "here", "-q")
    assert downloaded.stdout == "here\n", downloaded.stderr
    assert (tmp_path / "here" / "weights.txt").read_text() == "0.25"
    assert "weights.txt" in det("checkpoint", "describe", checkpoint["uuid"]).stdout
    assert det("trial", "download", best["id"], "--best", "-q").returncode == 0

    archive = det("experiment", "download-model-def", 1).stdout.strip()
    with tarfile.open(fileobj=io.BytesIO((tmp_path / archive).read_bytes())) as packed:
        assert "train.py" in [name.removeprefix("./") for name in packed.getnames()]
    assert "name: tiny" in det("experiment", "config", 1).stdout
    assert det("experiment", "archive", 1).returncode == 0
    assert json.loads(det("experiment", "list", "--json").stdout) == []


def test_a_failure_is_told_by_wait_describe_and_logs(det_here: Any, tmp_path: Path) -> None:
    det = det_here
    (tmp_path / "code" / "train.py").write_text("print('so far')\n1 / 0\n")
    assert det("experiment", "create", "config.yaml", "code").returncode == 0
    waited = det("experiment", "wait", 1, "--polling-interval", 0.2, timeout=LONG_ENOUGH)
    assert waited.returncode == 1, waited.stdout + waited.stderr
    assert "ZeroDivisionError" in det("experiment", "describe", 1).stdout
    assert "ZeroDivisionError" in det("experiment", "logs", 1).stdout


def test_a_killed_experiment_is_told_by_the_exit_code(det_here: Any, tmp_path: Path) -> None:
    det = det_here
    (tmp_path / "code" / "train.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    assert det("experiment", "create", "config.yaml", "code").returncode == 0
    assert det("experiment", "kill", 1).stdout == "Killed experiment 1\n"
    waited = det("experiment", "wait", 1, "--polling-interval", 0.2, timeout=LONG_ENOUGH)
    assert waited.returncode == 3, waited.stdout + waited.stderr
    assert "nothing to do" in det("experiment", "kill", 1).stdout
