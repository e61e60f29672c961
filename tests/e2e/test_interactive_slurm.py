"""Shells on a real Slurm: steps of the job that they belong to, and SSH through the master."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.e2e.conftest import User
from tests.e2e.test_slurm import jobs, on_slurm
from tests.waiting import LONG_ENOUGH, wait_until

__all__ = ["on_slurm"]

SLEEPER = 'python3 -c "import time; time.sleep(98765)"'


def test_a_shell_is_a_step_of_its_job_and_is_reached_by_ssh_through_the_master(on_slurm: User) -> None:
    user = on_slurm
    task_id = user.det("shell", "start", "--config", "resources.slots=0", "--detach").strip()
    wait_until(lambda: user.json("shell", "describe", task_id)["state"] == "STATE_RUNNING")
    (job,) = jobs(user)
    assert f"job {job} SHELL" in user.det("shell", "open", task_id, "echo job $SLURM_JOB_ID $DET_TASK_TYPE")
    user.det("shell", "open", task_id, "exit 6", code=6)
    assert [job["summary"]["state"] for job in user.json("job", "list")["jobs"]] == ["STATE_SCHEDULED"]
    ssh = shlex.split(user.det("shell", "show_ssh_command", task_id))
    editor = {name: value for name, value in user.env.items() if not name.startswith("DETHPC_HOME")}
    wait_until(lambda: subprocess.run([*ssh, "true"], env=editor, stdin=subprocess.DEVNULL).returncode == 0)
    remote = subprocess.run(
        [*ssh, "echo job $SLURM_JOB_ID; exit 4"],
        env=editor,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
    )
    assert (remote.returncode, remote.stdout) == (4, f"job {job}\n"), remote.stderr
    assert f"job {job}" in user.det("shell", "open", "--ssh", task_id, "echo job $SLURM_JOB_ID; exit 5", code=5)
    user.det("shell", "kill", task_id)
    wait_until(lambda: not jobs(user))


def test_a_shell_opens_on_each_node_of_a_running_trial(on_slurm: User) -> None:
    user = on_slurm
    (pool,) = (pool for pool in user.json("resource-pool", "list") if pool["defaultComputePool"])
    resources = {"slots_per_trial": 2 * pool["slotsPerAgent"]}
    experiment = user.create(entrypoint=SLEEPER, resources=resources)
    user.wait_state(experiment, "RUNNING")
    (trial,) = user.trials(experiment)
    say = "echo $SLURMD_NODENAME of trial $DET_TRIAL_ID"

    def nodes() -> list[str]:
        (run,) = user.json("trial", "describe", str(trial["id"]))["runs"]
        return list(run["nodes"])

    wait_until(lambda: len(nodes()) == 2)
    for node in nodes():
        printed = user.det("shell", "open", "--trial", str(trial["id"]), "--node", node, say)
        assert f"{node} of trial {trial['id']}" in printed
    user.det("experiment", "kill", str(experiment))
    wait_until(lambda: not jobs(user))


def test_a_shell_over_two_nodes_runs_on_the_first_and_srun_reaches_the_other(on_slurm: User) -> None:
    user = on_slurm
    (pool,) = (pool for pool in user.json("resource-pool", "list") if pool["defaultComputePool"])
    slots = 2 * pool["slotsPerAgent"]
    task_id = user.det("shell", "start", "--config", f"resources.slots={slots}", "--detach").strip()
    wait_until(
        lambda: [a["isReady"] for a in user.api("GET", f"/api/v1/tasks/{task_id}")["task"]["allocations"]] == [True]
    )
    names = user.det("shell", "open", task_id, "srun --overlap --ntasks-per-node=1 hostname").split()
    assert len(names) == 2
    user.det("shell", "kill", task_id)
    wait_until(lambda: not jobs(user))


@pytest.mark.everything
def test_each_interactive_task_ends_when_it_is_idle_and_says_so(on_slurm: User) -> None:
    user = on_slurm
    experiment = user.create()
    user.det("experiment", "wait", str(experiment))
    idle = ("--config", "idle_timeout=2s", "--detach")
    no_slot = ("--config", "resources.slots=0", *idle)
    tasks = {
        "notebook": user.det("notebook", "start", *no_slot).strip(),
        "shell": user.det("shell", "start", *no_slot).strip(),
        "tensorboard": user.det("tensorboard", "start", str(experiment), *idle).strip(),
    }
    for noun, task_id in tasks.items():
        wait_until(lambda n=noun, t=task_id: user.json(n, "describe", t)["state"] == "STATE_TERMINATED")  # type: ignore[misc]
        assert user.json(noun, "describe", task_id)["exitStatus"] == "idle for 2s (idle_timeout)"
        assert "idle for 2s (idle_timeout)" in user.det(noun, "list", "--all")
    wait_until(lambda: not jobs(user))
