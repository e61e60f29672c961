"""Files of checkpoints that are to go are removed by a job on a compute node of a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dethpc import storage
from dethpc.exec.garbage import DONE
from tests.e2e.conftest import User
from tests.e2e.test_slurm import on_slurm, slurm_command
from tests.waiting import wait_until

__all__ = ["on_slurm"]


def removals(user: User) -> list[Path]:
    """Directories of the runs that have removed something, in no order."""
    return [file.parent for file in user.home.glob(f"runs/*/{DONE}")]


@pytest.mark.everything
def test_a_policy_is_followed_by_a_job_when_the_experiment_ends_and_when_it_is_set(on_slurm: User) -> None:
    user = on_slurm
    section = {"type": "shared_fs", "host_path": str(user.folder / "checkpoints")}
    policy = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 2}
    experiment = user.create(checkpoint_storage={**section, **policy}, resources={"slots_per_trial": 1})
    store = storage.build(section)
    saved: set[str] = set()

    def steps_left() -> list[int]:
        found = user.api("GET", f"/api/v1/experiments/{experiment}/checkpoints?limit=100")["checkpoints"]
        saved.update(one["uuid"] for one in found)
        return sorted(one["metadata"]["steps_completed"] for one in found if store.exists(one["uuid"]))

    user.wait_state(experiment, "COMPLETED")
    wait_until(lambda: steps_left() == [15, 20] and removals(user))
    (first,) = removals(user)
    job = slurm_command(user, "scontrol", "show", "job", json.loads((first / "claim").read_text())["job_id"])
    assert "Checkpoint GC" in job or "exec.garbage" in job or str(first) in job
    batch_host = job.partition("BatchHost=")[2].split()[0]
    assert batch_host in slurm_command(user, "sinfo", "--noheader", "--Node", "--format=%N").split()
    assert len(json.loads((first / DONE).read_text())) == 2 and len(saved) == 4

    shown = user.det("experiment", "set", "gc-policy", str(experiment), *_options(0, 0, 1), input="n\n", code=None)
    assert "deletes 1 checkpoint of" in shown and steps_left() == [15, 20]
    user.det("experiment", "set", "gc-policy", str(experiment), *_options(0, 0, 1), "--yes")
    # The second job removes what the first has left of itself, too.
    wait_until(lambda: steps_left() == [20] and removals(user) and removals(user) != [first])
    wait_until(lambda: user.det("checkpoint", "list", str(experiment)).count("DELETED") == 3)
    assert user.det("checkpoint", "list", str(experiment)).count("COMPLETED") == 1
    assert "save_trial_latest keep" in user.det("checkpoint", "list", str(experiment), "--wide")


def _options(experiment_best: int, trial_best: int, trial_latest: int) -> list[str]:
    return [
        f"--save-experiment-best={experiment_best}",
        f"--save-trial-best={trial_best}",
        f"--save-trial-latest={trial_latest}",
    ]
