"""A checkpoint storage without room: its trials wait, say where there is none, and go on when there is."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import User, take_down
from tests.waiting import wait_until

TRAIN = """
import sys
import determined as det
info = det.get_cluster_info()
hidden = info.trial.hparams["hidden"]
start = 0
with det.core.init() as core:
    if info.latest_checkpoint:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            start = int((path / "step").read_text())
    print(f"starting at step {start}", flush=True)
    for step in range(start, 3):
        core.train.report_training_metrics(steps_completed=step + 1, metrics={"loss": 1.0})
        with core.checkpoint.store_path({"steps_completed": step + 1}) as (path, _):
            (path / "step").write_text(str(step + 1))
            try:
                (path / "weights").write_bytes(bytes(3 << 20))
            except OSError:
                if not hidden:
                    raise
                failed = True
            else:
                failed = False
            if failed:  # as libraries do that write by themselves
                raise RuntimeError("file write failed")
    core.train.report_validation_metrics(steps_completed=3, metrics={"validation_loss": 1.0})
"""


@pytest.fixture
def small(user: User, tmp_path: Path) -> Iterator[Path]:
    """A file system of 5 MiB for checkpoints of 3."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("needs root to mount a small file system")
    yield place
    take_down(user)
    subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_full_checkpoint_storage_costs_no_restart_and_training_resumes_when_there_is_room(
    user: User, small: Path, hidden: bool
) -> None:
    user.write("context/train.py", TRAIN)
    storage = {"type": "shared_fs", "host_path": str(small)}
    experiment = user.create(hyperparameters={"hidden": hidden}, checkpoint_storage=storage, max_restarts=0)
    where = f"{small}: No space left on device"

    def says(*words: str) -> bool:
        """Between two tries it waits."""
        return f"waits for its storage: {where}" in user.det(*words)

    wait_until(lambda: user.trials(experiment) and says("trial", "describe", "1"))
    wait_until(lambda: says("experiment", "describe", str(experiment)))
    assert where in user.log(experiment)
    wait_until(lambda: len(user.runs_of(experiment)) >= 3)  # it is tried, and found full, more than once
    assert user.trials(experiment)[0]["restarts"] == 0
    subprocess.run(["mount", "-o", "remount,size=50m", str(small)], check=True)
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    assert (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 0)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == [1, 2, 3]
    assert "starting at step 1" in user.log(experiment)


def test_lists_and_describe_say_that_the_master_cannot_write(user: User, tmp_path: Path) -> None:
    """What ended meanwhile is shown as running."""
    user.home.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", str(user.home)], check=False
    ).returncode:
        pytest.skip("needs root to mount a small file system")
    try:
        user.write("context/train.py", "import time, os\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.1)\n")
        go = tmp_path / "go"
        experiment = user.create(environment={"environment_variables": [f"GO={go}"]})
        wait_until(lambda: list(user.home.glob("runs/*/attempts/0/started.json")))
        with contextlib.suppress(OSError), open(user.home / "rest", "wb", buffering=0) as rest:
            while rest.write(bytes(1 << 16)):
                pass
        go.touch()
        said = "note: the master answers, and cannot write ("
        wait_until(lambda: user.det("experiment", "list") and said in user.errors)
        assert "No space left on device" in user.errors or "disk is full" in user.errors
        user.det("experiment", "describe", str(experiment))
        assert said in user.errors
        (user.home / "rest").unlink()
        wait_until(lambda: user.det("experiment", "list") and said not in user.errors)
        user.det("experiment", "wait", str(experiment))
    finally:
        take_down(user)
        subprocess.run(["umount", "-l", str(user.home)], check=False)
