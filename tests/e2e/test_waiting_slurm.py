"""What a user of a busy Slurm is told: why a trial waits, and what would start it sooner."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.cluster import outages
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of
from tests.waiting import wait_until


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(slurm, tmp_path) as user:
        yield user


@contextmanager
def full(slurm: Cluster) -> Iterator[str]:
    """All GPUs are another user's, if this test may act as one; says whose they are. No process runs: theirs could not here."""
    other: dict[str, Any] = {"user": "daemon", "group": "daemon", "extra_groups": []} if os.getuid() == 0 else {}
    asking = ["salloc", "--no-shell", "--job-name=theirs", "-N4", "--gres=gpu:4"]
    said = []

    def asked() -> bool:
        """A salloc that fails, as one does whose controller is busy just then, is run again."""
        slurm.run("scancel", "--name=theirs")
        wait_until(lambda: not slurm.run("squeue", "-h", "--name=theirs"))
        # In an environment of its own: what tests before this one have left in ours may be requests to salloc.
        with contextlib.suppress(subprocess.TimeoutExpired):  # the allocation outlives it
            done = subprocess.run(asking, env=slurm.env, cwd="/", capture_output=True, text=True, timeout=60, **other)
            said[:] = [done.stderr]
        return slurm.run("squeue", "-h", "--name=theirs", "-o", "%T").split() == ["RUNNING"]

    try:
        try:
            wait_until(asked)
        except AssertionError as error:
            raise AssertionError(f"{error}; salloc: {said}") from error
        yield "1 job of other users" if other else "1 job of this master's owner"
    finally:
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
        assert "8 GPUs on one node, but the largest node of pool main has 4" in user.errors
        assert "set slurm.slots_per_node: 4" in user.errors

        experiment = user.create(hyperparameters={"lr": 0.1, "steps": 2})
        wait_until(lambda: "Resources" in waiting(user, experiment))
        said = f"It waits for 1 GPU on one node to be free: 16 of 16 slots of pool main are in use by {whose}"
        assert said in user.det("experiment", "describe", str(experiment))
        assert said in user.det("job", "list", "--why")
        (trial,) = user.trials(experiment)
        assert said in user.det("trial", "describe", str(trial["id"]))
        assert "queue: It waits for 1 GPU on one node to be free" in user.log(experiment)

        job = slurm.run("squeue", "-h", "--me", "-t", "PENDING", "-o", "%i").split()[0]
        slurm.run("scontrol", "uhold", job)
        wait_until(lambda: "JobHeldUser" in waiting(user, experiment))
        assert f"scontrol release {job}" in user.det("experiment", "describe", str(experiment))
        slurm.run("scontrol", "release", job)
    user.wait_state(experiment, "COMPLETED")
    assert waiting(user, experiment) == {}
    reasons = [line.partition("queue: ")[2] for line in user.log(experiment).splitlines() if "Waiting in the" in line]
    assert reasons
    assert all(line != later for line, later in zip(reasons, reasons[1:], strict=False)), "said more than once"


BROKEN_ON_N0 = """
import os
if os.environ["SLURMD_NODENAME"] == "n0":
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
"""


def excluded(user: User) -> dict[str, str]:
    """Node -> why it is left out."""
    return {agent["id"]: agent["reason"] for agent in user.json("agent", "list") if agent["excluded"]}


def exclusions(user: User) -> set[str]:
    """What the scripts of all runs so far exclude."""
    lines = [line for path in user.home.glob("runs/*/job.sbatch") for line in path.read_text().splitlines()]
    return {line.partition("--exclude=")[2] for line in lines if "--exclude=" in line}


def test_a_bad_node_is_left_out_until_it_is_enabled(on_slurm: User, slurm: Cluster) -> None:
    user = on_slurm
    train = user.folder / "context" / "train.py"
    good = train.read_text()
    train.write_text(BROKEN_ON_N0 + good)
    search = {
        "searcher": {"name": "random", "metric": "validation_loss", "max_trials": 4},
        "hyperparameters": {"lr": {"type": "double", "minval": 0.01, "maxval": 0.1}, "steps": 4},
        "max_restarts": 9,
    }
    experiment = user.create(**search)  # four trials of one slot: Slurm fills n0 first
    user.wait_state(experiment, "COMPLETED")
    assert excluded(user).keys() == {"n0"} and "broken hardware" in excluded(user)["n0"]
    assert "excluded until" in user.det("agent", "list")
    assert exclusions(user) == {"n0"}
    found = user.json("experiment", "goodput", str(experiment))["total"]
    assert found["useful"] > 0 and found["overhead"] > 0
    assert found["useful"] + found["lost"] + found["overhead"] == pytest.approx(found["allocated"])

    user.det("agent", "enable", "n0")
    assert excluded(user) == {}
    train.write_text(good)
    user.det("agent", "disable", "n1", "--reason", "smells")
    assert excluded(user) == {"n1": "smells"}
    user.wait_state(
        user.create("--config", "name=next", **{**search, "hyperparameters": {"lr": 0.1, "steps": 1}}), "COMPLETED"
    )
    assert exclusions(user) == {"n0", "n1"}


def test_a_node_that_goes_down_under_a_trial_is_remembered(
    slurm_private: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = slurm_private(nodes=2, gpus_per_node=1)
    with user_of(cluster, tmp_path) as user:
        experiment = user.create(hyperparameters={"lr": 0.1, "steps": 10_000, "pause": 0.1})
        user.wait_steps(experiment, 1)
        (node,) = (agent["id"] for agent in user.json("agent", "list") if agent["uses"])
        assert f"trial {user.trials(experiment)[0]['id']} (experiment {experiment})" in user.det("agent", "list")
        outages.kill_node(cluster, node, jobs_too=True)
        wait_until(lambda: {a["id"] for a in user.json("agent", "list") if a["failures"] == 1} == {node})
        assert excluded(user) == {}
        user.det("experiment", "kill", str(experiment))
