"""What a user of a busy Slurm is told: why a trial waits, and what would start it sooner."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User, wait_until
from tests.e2e.test_slurm import user_of


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(slurm, tmp_path) as user:
        yield user


@contextmanager
def full(slurm: Cluster) -> Iterator[str]:
    """All GPUs are another user's, if this test may act as one; says whose they are. No process runs: theirs could not here."""
    as_other = ["--uid", "nobody"] if os.getuid() == 0 else []
    asking = ["salloc", "--no-shell", "--job-name=theirs", *as_other, "-N4", "--gres=gpu:4"]
    salloc = subprocess.Popen(asking, env={**os.environ, **slurm.env}, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: slurm.run("squeue", "-h", "--name=theirs", "-o", "%T").split() == ["RUNNING"])
        yield "1 job of other users" if as_other else "1 job of yours"
    finally:
        salloc.kill()  # the allocation outlives it
        salloc.wait()
        slurm.run("scancel", "--name=theirs")


def waiting(user: User, experiment: int) -> dict[str, Any]:
    """Its groups by cause."""
    found = user.api("GET", f"/api/v1/experiments/{experiment}/waiting")
    return {group["cause"]: group for group in found["groups"]}


def test_a_trial_that_waits_says_for_what(on_slurm: User, slurm: Cluster) -> None:
    user = on_slurm
    with full(slurm) as whose:
        # What can never start is refused, with the change that helps.
        user.config(resources={"slots_per_trial": 8}, slurm={"slots_per_node": 8})
        user.det("experiment", "create", "config.yaml", "context", code=1)
        assert "8 GPUs on one node asked, the largest node of pool main has 4" in user.errors
        assert "set slurm.slots_per_node: 4" in user.errors

        experiment = user.create(hyperparameters={"lr": 0.1, "steps": 2})
        wait_until(lambda: "Resources" in waiting(user, experiment), 90)
        said = f"It waits for 1 GPU on one node to be free: 16 of 16 slots of pool main are in use by {whose}"
        assert said in user.det("experiment", "describe", str(experiment))
        (trial,) = user.trials(experiment)
        assert said in user.det("trial", "describe", str(trial["id"]))
        assert "waiting: It waits for 1 GPU on one node to be free" in user.log(experiment)

        job = slurm.run("squeue", "-h", "--me", "-t", "PENDING", "-o", "%i").split()[0]
        slurm.run("scontrol", "uhold", job)
        wait_until(lambda: "JobHeldUser" in waiting(user, experiment))
        assert f"scontrol release {job}" in user.det("experiment", "describe", str(experiment))
        slurm.run("scontrol", "release", job)
    user.wait_state(experiment, "COMPLETED")
    assert waiting(user, experiment) == {}
    told = [line.partition("waiting: ")[2] for line in user.log(experiment).splitlines() if "waiting: " in line]
    assert all(line != later for line, later in zip(told, told[1:], strict=False)), "said more than once"
