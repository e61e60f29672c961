"""``det run-local``: a whole experiment here, and nothing that is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import LONG_ENOUGH, wait_until


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """A user whose Slurm is not to be asked: what stands for it fails loudly."""
    slurm = tmp_path / "slurm"
    slurm.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "sinfo"):
        (slurm / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 1\n")
        (slurm / name).chmod(0o755)
    user = make_user(tmp_path)
    user.env["PATH"] = f"{slurm}:{user.env['PATH']}"
    user.env["DET_MASTER"] = "http://127.0.0.1:9"  # nobody's
    yield user
    assert not (tmp_path / "asked").exists()
    take_down(user)


def masters(user: User) -> list[str]:
    found = subprocess.run(["pgrep", "-f", f"dethpc.master --home {user.home}"], capture_output=True, text=True)
    return found.stdout.split()


def test_a_search_runs_to_its_end_and_no_master_stays(user: User) -> None:
    user.config(
        searcher={"name": "random", "metric": "validation_loss", "max_trials": 2},
        hyperparameters={"lr": {"type": "double", "minval": 0, "maxval": 1}, "steps": 4},
        resources={"resource_pool": "of-the-cluster"},
    )
    out = json.loads(user.det("run-local", "config.yaml", "context", "--json", "--slots", "2"))
    assert out["experiment"]["state"] == "STATE_COMPLETED"
    assert [trial["state"] for trial in out["trials"]] == ["STATE_COMPLETED"] * 2
    assert "experiment 1: COMPLETED" in user.errors
    assert out["home"] == str(user.home / "local")
    assert masters(user) == []


def test_a_failure_is_the_exit_code_and_its_reason_is_shown(user: User) -> None:
    user.config(entrypoint="echo no data >&2; exit 7")
    out = user.det("run-local", "config.yaml", "context", code=1)
    assert "exit code 7" in out and "experiment 1: ERROR" in out
    user.config(resources={"slots_per_trial": 3})
    user.det("run-local", "config.yaml", "context", "--slots", "2", code=1)
    assert "slots_per_trial" in user.errors and "--slots" in user.errors
    assert masters(user) == []


def test_the_last_of_two_stops_the_master_and_an_interrupt_kills_the_experiment(user: User) -> None:
    user.config(hyperparameters={"lr": 0.1, "steps": 10000, "pause": 0.05})
    command = [sys.executable, "-m", "dethpc.cli", "run-local", "config.yaml", "context", "--slots", "2"]
    first = subprocess.Popen(command, cwd=user.folder, env=user.env, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    wait_until(lambda: "RUNNING" in first.stdout.readline())  # type: ignore[union-attr]
    user.config(file="short.yaml", hyperparameters={"lr": 0.1, "steps": 2})
    user.det("run-local", "short.yaml", "context")
    assert len(masters(user)) == 1
    os.kill(first.pid, signal.SIGINT)
    first.communicate(timeout=LONG_ENOUGH)
    assert first.returncode == 130
    assert masters(user) == []
    del user.env["DET_MASTER"]
    user.env["DETHPC_HOME"] = str(user.home / "local")
    assert [e["state"] for e in user.json("experiment", "list")] == ["STATE_CANCELED", "STATE_COMPLETED"]


def test_a_master_that_was_there_stays(user: User) -> None:
    del user.env["DET_MASTER"]
    there = {**user.env, "DETHPC_HOME": str(user.home / "local"), "DETHPC_SCHEDULER": "local"}
    command = [sys.executable, "-m", "dethpc.cli", "master", "up"]
    subprocess.run(command, env=there, cwd=user.folder, check=True, capture_output=True)
    before = masters(user)
    user.config(hyperparameters={"lr": 0.1, "steps": 2})
    user.det("run-local", "config.yaml", "context")
    assert masters(user) == before != []
