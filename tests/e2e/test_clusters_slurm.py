"""Two clusters under one slurmdbd, whose jobs have the same numbers: a shell chooses one by SLURM_CLUSTERS."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dethpc.deploy import accounting, slurm_dev
from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User, make_user, take_down


@pytest.fixture
def clusters(slurm_private: Callable[..., Cluster]) -> tuple[Cluster, Cluster]:
    """``dev`` has slurmdbd, and ``other`` uses it."""
    if not accounting.installed(slurm_dev.search_path()):
        pytest.skip(f"slurmdbd or MariaDB is not installed: {accounting.INSTALL}")
    dev = slurm_private(nodes=1, accounting=True)
    conf = dev.conf.read_text()
    (port,) = re.findall(r"^AccountingStoragePort=(\d+)", conf, re.MULTILINE)
    munge = f"{dev.folder}/run/munge.socket"
    lines = ("ClusterName=other", f"AuthInfo=socket={munge},cred_expire=5", f"AccountingStoragePass={munge}")
    lines += ("AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1")
    return dev, slurm_private(nodes=2, extra=(*lines, f"AccountingStoragePort={port}"))


@pytest.fixture
def shell(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> User:
    return make_user(tmp_path, SLURM_CONF=str(clusters[0].conf))


def test_jobs_go_to_the_cluster_that_the_shell_chooses_or_nowhere(
    clusters: tuple[Cluster, Cluster], shell: User
) -> None:
    dev, other = clusters
    # Their numbers are those of the experiment's jobs, too: more than one where a busy controller's answer is lost.
    sleeping = {dev.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 1000").strip() for _ in range(5)}
    shell.env["SLURM_CLUSTERS"] = "other"
    try:
        experiment_id = shell.create(entrypoint="echo on $SLURM_CLUSTER_NAME; srun hostname >/dev/null && echo stepped")
        assert shell.wait_state(experiment_id, "COMPLETED", "ERROR")["state"] == "STATE_COMPLETED"
        log = shell.log(experiment_id)
        assert "on other" in log and "stepped" in log
        (job,) = shell.runs_of(experiment_id)
        assert job in sleeping and "COMPLETED" in other.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
        left = set(dev.run("squeue", "-h", "-o", "%i").split())
        assert left == sleeping, "the job of that number in the other cluster is left alone"
        shell.env["SLURM_CLUSTERS"] = "dev"
        told = shell.det("experiment", "create", "config.yaml", "context", code=None)
        assert (
            "this shell chooses the cluster dev (SLURM_CLUSTERS), and your master serves the cluster other"
            in told + shell.errors
        )
        shell.det("master", "down")
        shell.env["SLURM_CLUSTERS"] = "dev,other"
        shell.det("experiment", "create", "config.yaml", "context", code=None)
        assert "the name of one cluster" in shell.errors
    finally:
        shell.env["SLURM_CLUSTERS"] = "other"
        take_down(shell)
