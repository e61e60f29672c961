"""An installation is upgraded while trials run, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.test_slurm import user_of
from tests.e2e.upgrading import BEFORE, tree_of, upgrade_while_a_trial_runs

pytestmark = pytest.mark.everything


def test_nothing_is_lost_when_the_release_changes_while_jobs_run(slurm: Cluster, tmp_path: Path) -> None:
    with user_of(slurm, tmp_path) as user:
        upgrade_while_a_trial_runs(user, tree_of(BEFORE, tmp_path / "before"), slots=16)
