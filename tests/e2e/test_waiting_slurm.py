"""What a user of a busy Slurm is told: why a trial waits, and what would start it sooner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User, wait_until
from tests.e2e.test_slurm import user_of

NOBODY = "65534"


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(slurm, tmp_path) as user:
        yield user


def waiting(user: User, experiment: int) -> dict[str, Any]:
    """Its groups by cause."""
    found = user.api("GET", f"/api/v1/experiments/{experiment}/waiting")
    return {group["cause"]: group for group in found["groups"]}


def test_a_trial_that_waits_says_for_what(on_slurm: User, slurm: Cluster) -> None:
    user = on_slurm
    as_other = ["--uid", NOBODY] if os.getuid() == 0 else []
    other = slurm.run(
        "sbatch",
        "--parsable",
        *as_other,
        "--chdir=/",
        "--output=/dev/null",
        "-N4",
        "--gres=gpu:4",
        "--wrap",
        "sleep 1000",
    ).strip()
    try:
        wait_until(lambda: slurm.run("squeue", "-h", "-j", other, "-o", "%T").strip() == "RUNNING")

        # What can never start is refused, with the change that helps.
        user.config(resources={"slots_per_trial": 8}, slurm={"slots_per_node": 8})
        user.det("experiment", "create", "config.yaml", "context", code=1)
        assert "8 GPUs on one node asked, the largest node of pool main has 4" in user.errors
        assert "set slurm.slots_per_node: 4" in user.errors

        experiment = user.create(resources={"slots_per_trial": 4}, hyperparameters={"lr": 0.1, "steps": 2})
        wait_until(lambda: {"Resources", "Priority"} & waiting(user, experiment).keys())
        wait_until(lambda: "Resources" in waiting(user, experiment), 90)
        whose = "1 job of other users" if as_other else "1 job of yours"
        said = f"It waits for 4 GPUs on one node to be free: 16 of 16 slots of pool main are in use by {whose}"
        assert said in user.det("experiment", "describe", str(experiment))
        (trial,) = user.trials(experiment)
        assert said in user.det("trial", "describe", str(trial["id"]))
        assert "waiting: It waits for 4 GPUs on one node to be free" in user.log(experiment)

        job = slurm.run("squeue", "-h", "--me", "-t", "PENDING", "-o", "%i").split()[0]
        slurm.run("scontrol", "hold", job)
        wait_until(lambda: waiting(user, experiment).keys() & {"JobHeldUser", "JobHeldAdmin"})
        held = user.det("experiment", "describe", str(experiment))
        assert (
            f"scontrol release {job}" in held or "held by an administrator" in held
        )  # root's hold is an administrator's
        slurm.run("scontrol", "release", job)
    finally:
        slurm.run("scancel", other)
    user.wait_state(experiment, "COMPLETED")
    assert waiting(user, experiment) == {}
    told = [line for line in user.log(experiment).splitlines() if "waiting: " in line]
    assert len(told) == len({line.partition("waiting: ")[2] for line in told}), "said more than once"
