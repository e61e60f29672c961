"""A home without room: what ends meanwhile ends as it did, once there is room to write it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.master.durable import harness
from tests.e2e.conftest import User, make_user, processes_with, take_down
from tests.waiting import wait_until


@pytest.fixture
def on_small_disk(tmp_path: Path) -> Iterator[User]:
    """A user of this machine alone whose home has 40 MiB."""
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    user.home.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(user.home)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs root: mount")
    try:
        harness.build(user.home)
        yield user
        take_down(user)
    finally:
        subprocess.run(["umount", "-l", str(user.home)], check=False, capture_output=True)


@pytest.mark.parametrize(("code", "status"), [(3, "exit code 3; "), (0, "success")])
def test_the_exit_code_of_a_command_counts_that_ends_while_the_disk_is_full(
    on_small_disk: User, tmp_path: Path, code: int, status: str
) -> None:
    user, leave, fill = on_small_disk, tmp_path / "leave", on_small_disk.home / "fill"
    script = f"until [ -e {leave} ]; do sleep 0.1; done; exit {code}"
    task_id = user.det("command", "run", "--detach", script).strip()

    def described() -> dict[str, str]:
        row: dict[str, str] = user.json("command", "describe", task_id)
        return row

    wait_until(lambda: described()["state"] == "STATE_RUNNING")
    with pytest.raises(OSError, match="No space left"), fill.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    leave.touch()
    wait_until(lambda: not processes_with(f"DET_TASK_ID={task_id}") and not processes_with(f"runs/{task_id}"))
    fill.unlink()
    wait_until(lambda: described()["state"] == "STATE_TERMINATED")
    assert described()["exitStatus"].startswith(status) and described()["exitCode"] == code
