"""What decides over trials on a real Slurm is what Slurm said, never a word of a banner, a plug-in or an admin's script."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import SLEEPS, User, make_user, take_down
from tests.waiting import wait_until

BANNER = "NOTE: maintenance on Tuesday, 8:00-12:00; error: submission timed out for job 4711; try again later"
COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "sacct", "scontrol", "scancel")


@pytest.fixture
def greeted(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """A user whose site greets on both streams of every command, before and after the answer."""
    folder = tmp_path / "site-bin"
    folder.mkdir()
    greet = f"echo '{BANNER}'; echo 4711; echo '{BANNER}' >&2"
    for name in COMMANDS:
        script = folder / name
        silent = f'[[ "$*" != *--test-only* || ! -e {folder}/silent ]] || exit 1'
        script.write_text(f'#!/bin/bash\n{greet}\n{silent}\n{shutil.which(name)} "$@"\ncode=$?\n{greet}\nexit $code\n')
        script.chmod(0o755)
    user = make_user(tmp_path, SLURM_CONF=str(slurm.conf))
    user.env["PATH"] = f"{folder}:{user.env['PATH']}"
    yield user
    take_down(user)


def test_what_slurm_refuses_for_good_ends_the_trial_whatever_a_banner_says(greeted: User) -> None:
    greeted.config(slurm={"sbatch_args": ["--licenses=nosuch"]})
    greeted.det("experiment", "create", "config.yaml", "context", code=1)
    assert "Invalid license specification" in greeted.errors and "maintenance" not in greeted.errors
    (Path(greeted.env["PATH"].split(":")[0]) / "silent").touch()  # its wrapper knows no --test-only
    experiment_id = greeted.create(slurm={"sbatch_args": ["--licenses=nosuch"]})
    assert greeted.wait_state(experiment_id, "ERROR", "COMPLETED")["state"] == "STATE_ERROR"
    (trial,) = greeted.trials(experiment_id)
    reason = greeted.json("trial", "describe", str(trial["id"]))["trial"]["reason"]
    assert "Invalid license specification" in reason and "maintenance" not in reason


@pytest.mark.everything
def test_an_experiment_on_two_nodes_ends_well_amid_banners(greeted: User) -> None:
    experiment_id = greeted.create(entrypoint="echo here", resources={"slots_per_trial": 8})
    assert greeted.wait_state(experiment_id, "ERROR", "COMPLETED")["state"] == "STATE_COMPLETED"
    (trial,) = greeted.trials(experiment_id)
    (run,) = greeted.json("trial", "describe", str(trial["id"]))["runs"]
    assert len(run["nodes"]) == 2 and all(re.fullmatch(r"n\d", node) for node in run["nodes"]), run


def test_the_doctor_says_which_commands_greet(greeted: User) -> None:
    found = [f for f in greeted.json("doctor") if f["check"] == "banners"]
    assert len(found) == 1 and found[0]["level"] == "note"
    assert all(name in found[0]["found"] for name in COMMANDS if name != "sacct") and "maintenance" in found[0]["found"]


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    user = make_user(tmp_path, SLURM_CONF=str(slurm.conf))
    yield user
    take_down(user)


def test_a_script_that_prints_its_environment_matches_no_policy_by_it(on_slurm: User) -> None:
    policies = [
        {"name": "bad disk", "pattern": ".*I/O error on /scratch.*", "action": "exclude_node"},
        {"name": "shape", "pattern": ".*shape mismatch.*", "action": "cancel_retries"},
    ]
    entrypoint = "sh -c 'env | sort; exit $((10 + DET_TRIAL_RUN_ID))'"
    experiment_id = on_slurm.create(entrypoint=entrypoint, max_restarts=2, log_policies=policies)
    on_slurm.wait_state(experiment_id, "ERROR", "COMPLETED")
    (trial,) = on_slurm.trials(experiment_id)
    told = on_slurm.json("trial", "describe", str(trial["id"]))
    assert trial["restarts"] == 2 and told["trial"]["logPolicyMatched"] is None
    assert "shape mismatch" in on_slurm.log(experiment_id) and "exclude" not in told["trial"]["reason"]


@pytest.mark.parametrize("word", ["suspend", pytest.param("stop", marks=pytest.mark.everything)])
def test_a_job_that_an_admin_suspends_is_told_as_suspended_until_it_resumes(
    slurm: Cluster, on_slurm: User, word: str
) -> None:
    on_slurm.write("context/train.py", SLEEPS)
    experiment_id = on_slurm.create()
    on_slurm.wait_state(experiment_id, "RUNNING")
    (job,) = wait_until(lambda: on_slurm.runs_of(experiment_id))
    suspend, resume = {
        "suspend": (["scontrol", "suspend", job], ["scontrol", "resume", job]),
        "stop": (["scancel", "--signal=STOP", job], ["scancel", "--signal=CONT", job]),
    }[word]
    wait_until(lambda: "RUNNING" in slurm.run("squeue", "-h", "-j", job, "-o", "%T"))
    slurm.run(*suspend)
    trial_id = str(on_slurm.trials(experiment_id)[0]["id"])
    wait_until(lambda: "SUSPENDED" in on_slurm.det("experiment", "list"))
    assert "SUSPENDED" in on_slurm.det("trial", "describe", trial_id)
    described = on_slurm.det("experiment", "describe", str(experiment_id))
    assert "SUSPENDED" in described and f"has suspended its job {job}" in described
    slurm.run(*resume)
    wait_until(lambda: "SUSPENDED" not in on_slurm.det("experiment", "list"))
    assert "RUNNING" in on_slurm.det("experiment", "list")
    assert "suspended" not in on_slurm.det("experiment", "describe", str(experiment_id))
    on_slurm.det("experiment", "kill", str(experiment_id))
