"""GPUs of any type: pools, nodes and jobs on a cluster whose types are numbers, MIG slices and long names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.shape import NodeGroup
from dethpc.deploy.slurm_dev import Cluster
from dethpc.domain.ports import JobState
from dethpc.scheduler.slurm.commands import SlurmCommands
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of
from tests.waiting import wait_until

TYPES = {
    "g3090": {"3090": 4},
    "g2080": {"2080ti": 4},
    "mig": {"1g.5gb": 7, "a100_1g.10gb": 2},
    "two": {"nvidia_a100-sxm4-80gb": 4, "v100": 2},
}


@pytest.fixture
def cluster(slurm_private: Callable[..., Cluster]) -> Cluster:
    groups = tuple(NodeGroup(f"n{name}", 1, gpus) for name, gpus in TYPES.items())
    partitions = {name: f"Nodes=n{name}0" for name in TYPES}
    partitions["g3090"] += " Default=YES"
    return slurm_private(groups=groups, partitions=partitions)


def test_gpus_of_every_type_are_slots_and_are_asked_of_slurm(cluster: Cluster, tmp_path: Path) -> None:
    pools: dict[str, Any] = {
        **{name: {} for name in TYPES},
        "old": {"partition": "two", "gpu_type": "v100"},
        "slices": {"partition": "mig", "gpu_type": "1g.5gb"},
    }
    with user_of(cluster, tmp_path, pools=pools) as user:
        user.write("context/train.py", 'import os; print("CVD", os.environ.get("CUDA_VISIBLE_DEVICES"))')
        user.det("master", "up")
        listed = {row["name"]: row for row in user.api("GET", "/api/v1/resource-pools")["resourcePools"]}
        slots = {name: (pool["slotsAvailable"], pool["slotType"]) for name, pool in listed.items()}
        assert slots == {
            "g3090": (4, "TYPE_CUDA"),
            "g2080": (4, "TYPE_CUDA"),
            "mig": (9, "TYPE_CUDA"),
            "two": (6, "TYPE_CUDA"),
            "old": (2, "TYPE_CUDA"),
            "slices": (7, "TYPE_CUDA"),
        }
        for pool, gpus, kind in (
            ("g3090", 2, "3090"),
            ("g2080", 1, "2080ti"),
            ("old", 2, "v100"),
            ("slices", 3, "1g.5gb"),
        ):
            assert given(user, pool, gpus) == gpus
            assert given(user, pool, gpus, gpu_type=kind) == gpus


def given(user: User, pool: str, slots: int, **slurm: Any) -> int:
    """How many GPUs a trial of that many slots sees."""
    experiment = user.create(
        entrypoint="python3 train.py",
        searcher={"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        resources={"slots_per_trial": slots, "resource_pool": pool},
        max_restarts=0,
        **({"slurm": slurm} if slurm else {}),
    )
    user.det("experiment", "wait", str(experiment))
    devices = re.search(r"CVD (\S+)", user.log(experiment))
    assert devices is not None
    return len(devices[1].split(","))


def test_gpus_in_use_are_counted(cluster: Cluster) -> None:
    scheduler = SlurmCommands(environment=cluster.env)
    job = cluster.run("sbatch", "--parsable", "--gres=gpu:3090:3", "--output=/dev/null", "--wrap=sleep 1000").strip()
    wait_until(lambda: scheduler.records([job])[job].state is JobState.RUNNING)
    (node,) = [node for node in scheduler.nodes() if node.name == "ng30900"]
    assert (node.slot_type, node.slots, node.slots_used) == ("cuda", 4, 3)
