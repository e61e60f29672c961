"""Commands on a real Slurm: several nodes, what Slurm says of their end, and nothing left behind."""

from __future__ import annotations

import os
import signal

import pytest

from dethpc.deploy.slurm_dev import Cluster
from dethpc.exec.supervision.processes import arguments
from tests.e2e.conftest import User, processes_with, sleepers
from tests.e2e.test_slurm import jobs, on_slurm, slurm_command
from tests.waiting import wait_until

__all__ = ["on_slurm"]


def test_a_command_runs_on_every_node_of_its_job_and_exits_as_its_program_does(on_slurm: User) -> None:
    user = on_slurm
    (pool,) = (pool for pool in user.json("resource-pool", "list") if pool["defaultComputePool"])
    slots = 2 * pool["slotsPerAgent"]
    script = "echo node $SLURM_NODEID of $SLURM_JOB_NUM_NODES; [ $SLURM_NODEID = 0 ] || exit 0; exit 5"
    printed = user.det("command", "run", "--config", f"resources.slots={slots}", script, code=5)
    assert "node 0 of 2" in printed and "node 1 of 2" in printed
    assert "failed with exit code 5" in user.errors


def test_a_command_is_a_job_of_the_queue_and_its_kill_leaves_nothing(on_slurm: User) -> None:
    user = on_slurm
    task_id = user.det("command", "run", "--detach", "sleep 98765 & sleep 98765").strip()
    wait_until(lambda: len(sleepers(user)) == 2)
    (job,) = jobs(user)
    (row,) = user.json("command", "list")
    assert (row["id"], row["job"]) == (task_id, job)
    assert [entry["type"] for entry in user.json("job", "list")["jobs"]] == ["TYPE_COMMAND"]
    assert user.json("slurm", job)["runs"][0]["run"]["id"] == f"{task_id}.1"
    user.det("command", "kill", task_id)
    wait_until(lambda: not sleepers(user) and not jobs(user))


def test_a_command_that_scancel_ends_is_no_success_even_where_its_shell_goes_on_to_exit_code_0(
    on_slurm: User, slurm: Cluster
) -> None:
    user = on_slurm
    script = 'trap "echo TERM came" TERM; sleep 98765; echo next line'
    task_id = user.det("command", "run", "--detach", script).strip()
    wait_until(lambda: len(jobs(user)) == 1 and len(sleepers(user)) == 1)
    slurm_command(user, "scancel", *jobs(user))
    wait_until(lambda: user.json("command", "describe", task_id)["state"] == "STATE_TERMINATED")
    assert "scancel" in user.json("command", "describe", task_id)["exitStatus"]
    assert "next line" in user.det("command", "logs", task_id) and not sleepers(user)


@pytest.mark.parametrize("program", ["srun", "dethpc.exec"])
def test_a_command_whose_launcher_is_killed_ends_with_that_in_words(on_slurm: User, program: str) -> None:
    user = on_slurm
    task_id = user.det("command", "run", "--detach", "sleep", "98765").strip()
    wait_until(lambda: len(sleepers(user)) == 1)

    def launchers() -> list[int]:
        """The first is srun itself, which starts another."""
        pids = sorted(processes_with(f"runs/{task_id}"))
        return [pid for pid in pids if program in " ".join(arguments(pid)[:3]).partition("--overlap")[0]]

    os.kill(launchers()[0], signal.SIGKILL)
    wait_until(lambda: user.json("command", "describe", task_id)["state"] == "STATE_TERMINATED")
    reason = user.json("command", "describe", task_id)["exitStatus"]
    assert "(srun or dethpc.exec) was killed by signal 9 (SIGKILL); unless somebody killed it" in reason
    for pid in sleepers(user):  # without cgroups Slurm does not know them any more
        os.kill(pid, signal.SIGKILL)
