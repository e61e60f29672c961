"""A checkpoint storage without room, on a real Slurm: waiting for it holds no GPU and costs no restart."""

from __future__ import annotations

from pathlib import Path

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.test_full_storage import Small, small, waits_until_there_is_room  # noqa: F401
from tests.e2e.test_slurm import user_of


def test_a_full_checkpoint_storage_costs_no_restart_and_training_resumes_when_there_is_room(
    small: Small,  # noqa: F811
    slurm: Cluster,
    tmp_path: Path,
) -> None:
    with user_of(slurm, tmp_path) as user:
        waits_until_there_is_room(user, small, hidden=False)
