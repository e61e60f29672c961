"""A checkpoint storage without room: its trials wait, say where there is none, and go on when there is."""

from __future__ import annotations

import contextlib
import shutil
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


class Small:
    """Checkpoints of 3 MiB find 5 MiB of room at ``path``: more is not there, or a quota does not give it (btrfs has one for
    everybody, root included). ``said``: how the system says that."""

    def __init__(self, path: Path, over_quota: bool) -> None:
        self.path, self._volume = path, path / "volume" if over_quota else None
        self.said = "Disk quota exceeded" if over_quota else "No space left on device"

    @property
    def storage(self) -> Path:
        return self._volume or self.path

    def make(self) -> None:
        """Skips where that cannot be done."""
        self.path.mkdir()
        if self._volume is None:
            return self._run("mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(self.path))
        image = self.path.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(256 << 20)
        self._run("mkfs.btrfs", "-q", str(image))
        self._run("mount", "-o", "loop", str(image), str(self.path))
        self._run("btrfs", "subvolume", "create", str(self._volume))
        self._run("btrfs", "quota", "enable", str(self.path))
        self._run("btrfs", "qgroup", "limit", "5M", str(self._volume))

    def grow(self) -> None:
        if self._volume is None:
            self._run("mount", "-o", "remount,size=50m", str(self.path))
        else:
            self._run("btrfs", "qgroup", "limit", "none", str(self._volume))

    def _run(self, *argv: str) -> None:
        if shutil.which(argv[0]) is None:
            pytest.skip(f"{argv[0]} is not installed")
        if subprocess.run(argv, check=False, capture_output=True).returncode:
            pytest.skip(f"needs root: {' '.join(argv)}")


@pytest.fixture(params=["no room", "over quota"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Small]:
    made = Small(tmp_path / "small", request.param == "over quota")
    try:
        made.make()
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made.path)], check=False, capture_output=True)


def waits_until_there_is_room(user: User, small: Small, hidden: bool) -> None:
    """An experiment finds the storage full, waits, and trains on from its last checkpoint when it has grown."""
    user.write("context/train.py", TRAIN)
    storage = {"type": "shared_fs", "host_path": str(small.storage)}
    experiment = user.create(hyperparameters={"hidden": hidden}, checkpoint_storage=storage, max_restarts=0)
    where = f"{small.storage}: {small.said}"

    def says(*words: str) -> bool:
        """Between two tries it waits."""
        return f"waits for its storage: {where}" in user.det(*words)

    wait_until(lambda: user.trials(experiment) and says("trial", "describe", str(user.trials(experiment)[0]["id"])))
    wait_until(lambda: says("experiment", "describe", str(experiment)))
    assert where in user.log(experiment)
    wait_until(lambda: says("trial", "list", str(experiment)))
    wait_until(lambda: len(user.runs_of(experiment)) >= 3)  # it is tried, and found full, more than once
    assert user.trials(experiment)[0]["restarts"] == 0
    small.grow()
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    assert (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 0)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == [1, 2, 3]
    assert "starting at step 1" in user.log(experiment)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_full_checkpoint_storage_costs_no_restart_and_training_resumes_when_there_is_room(
    small: Small, user: User, hidden: bool
) -> None:
    waits_until_there_is_room(user, small, hidden)


def test_lists_and_describe_say_that_the_master_cannot_write(user: User, tmp_path: Path) -> None:
    """What ended meanwhile is shown as running."""
    user.home.mkdir(exist_ok=True)
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
        said = f"note: the master answers, and cannot write ({user.home}: No space left on device): "
        wait_until(lambda: user.det("experiment", "list") and said in user.errors)
        user.det("experiment", "describe", str(experiment))
        assert said in user.errors
        (user.home / "rest").unlink()
        wait_until(lambda: user.det("experiment", "list") and said not in user.errors)
        user.det("experiment", "wait", str(experiment))
        (trial,) = user.trials(experiment)
        assert (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 0)
    finally:
        take_down(user)
        subprocess.run(["umount", "-l", str(user.home)], check=False)
