"""The worked examples in ``site-configs``: each on a virtual Slurm of that shape, from ``det experiment create`` to the result."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dethpc.deploy import accounting, slurm_dev
from dethpc.deploy.slurm_dev import Cluster, NodeGroup
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of

CONFIGS = Path(__file__).parents[2] / "site-configs"


class Site(NamedTuple):
    """A cluster of the shape that the file in ``site-configs`` is for, and what a trial in each pool asks of it."""

    groups: tuple[NodeGroup, ...]
    partitions: dict[str, str]
    trials: dict[str, tuple[int, str, set[str]]]
    """By pool: slots, the nodes on which it may run (a prefix), and lines of its script."""
    accounts: dict[str, tuple[str, ...]] = {}
    slots: dict[str, int] = {}


SITES = {
    "small-lab": Site(
        (NodeGroup("rtx", 2, {"": 4}, 32, 200_000),),
        {"gpu": "Default=YES", "debug": "MaxTime=60"},
        {
            "gpu": (2, "rtx", {"gres=gpu:2", "cpus-per-task=16", "mem=96G", "time=2880"}),
            "debug": (8, "rtx", {"nodes=2", "gres=gpu:4", "time=60"}),
        },
        slots={"gpu": 8, "debug": 8},
    ),
    "large-centre": Site(
        (
            NodeGroup("a", 1, {"a100": 4}, 64, 600_000, ("a100_80",)),
            NodeGroup("b", 1, {"a100": 4}, 64, 600_000, ("a100_40",)),
            NodeGroup("h", 1, {"h100": 8}, 96, 1_600_000),
        ),
        {"gpu": "Nodes=a0,b0 Default=YES", "gpu-h100": "Nodes=h0 AllowQos=normal"},
        {
            "a100": (
                4,
                "a",
                {"account=ai-projects", "qos=normal", "constraint=a100_80", "gres=gpu:a100:4", "mem=480G"},
            ),
            "h100": (2, "h", {"partition=gpu-h100", "gres=gpu:h100:2", "exclusive=user"}),
            "preemptable": (1, "", {"qos=scavenger", "gres=gpu:a100:1", "cpus-per-task=16"}),
        },
        accounts={"users": (), "ai-projects": ("scavenger",)},
        slots={"a100": 4, "h100": 8, "preemptable": 8},
    ),
    "heterogeneous": Site(
        (
            NodeGroup("a", 1, {"a100": 4}, 64, 300_000, ("nvlink", "epyc")),
            NodeGroup("v", 1, {"v100": 2}, 16, 100_000, ("xeon",)),
            NodeGroup("m", 1, {"mi250": 4}, 32),
        ),
        {"gpu": "Nodes=a0,v0 Default=YES", "amd": "Nodes=m0"},
        {
            "a100": (2, "a", {"gres=gpu:a100:2", "constraint=nvlink", "cpus-per-task=32"}),
            "v100": (1, "v", {"gres=gpu:v100:1", "time=4320", "time-min=240"}),
            "mi250": (1, "m", {"partition=amd", "gres=gpu:mi250:1"}),
            "cpu": (1, "", {"partition=gpu", "cpus-per-task=4"}),
        },
        slots={"a100": 4, "v100": 2, "mi250": 4, "cpu": 20},
    ),
    "no-gres": Site(
        (NodeGroup("n", 2, {}, 32),),
        {"gpu": "Default=YES"},
        {"gpu": (2, "n", {"exclusive", "cpus-per-task=16", "time=1440"})},
        slots={"gpu": 8},
    ),
    "cpu-only": Site(
        (NodeGroup("c", 2, {}, 16, 64_000), NodeGroup("big", 1, {}, 16, 256_000)),
        {"batch": "Nodes=c[0-1] Default=YES MaxTime=1-0", "bigmem": "Nodes=big0"},
        {
            "batch": (2, "c", {"cpus-per-task=8", "mem=16000M", "time=720"}),
            "bigmem": (1, "big", {"partition=bigmem", "cpus-per-task=8", "mem=64G"}),
        },
        slots={"batch": 8, "bigmem": 2},
    ),
}

TRAIN = """
import os, determined as det
info = det.get_cluster_info()
gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("ROCR_VISIBLE_DEVICES") or "none"
print(f"on {info.agent_id} with {len(info.slot_ids)} slots and devices {gpus}", flush=True)
if info.container_rank == 0:
    with det.core.init(distributed=det.core.DummyDistributedContext()) as core:
        for step in range(3):
            core.train.report_training_metrics(steps_completed=step + 1, metrics={"loss": 1 / (step + 1)})
        core.train.report_validation_metrics(steps_completed=3, metrics={"validation_loss": 0.5})
"""


def test_every_worked_example_has_its_cluster() -> None:
    assert set(SITES) == {path.stem for path in CONFIGS.glob("*.yaml")}


@pytest.mark.parametrize("name", SITES)
def test_a_trial_runs_in_every_pool_of_a_worked_example(
    name: str, slurm_private: Callable[..., Cluster], tmp_path: Path
) -> None:
    site = SITES[name]
    if site.accounts and not accounting.installed(slurm_dev.search_path()):
        pytest.skip(f"slurmdbd or MariaDB is not installed: {accounting.INSTALL}")
    more: dict[str, Any] = {"accounting": True, "accounts": site.accounts} if site.accounts else {}
    cluster = slurm_private(groups=site.groups, partitions=site.partitions, **more)
    written = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    # What belongs to that place alone: its folders, its network, its patience.
    here = {field: value for field, value in written.items() if field not in ("checkpoint_storage", "master", "limits")}
    with user_of(cluster, tmp_path, **here) as user:
        user.write("context/train.py", TRAIN)
        assert {pool["name"]: pool["slotsAvailable"] for pool in pools(user)} == site.slots
        experiments = {
            pool: user.create(resources={"resource_pool": pool, "slots_per_trial": slots})
            for pool, (slots, _, _) in site.trials.items()
        }
        for pool, (slots, prefix, lines) in site.trials.items():
            user.det("experiment", "wait", str(experiments[pool]))
            log = user.log(experiments[pool])
            found = [line for line in directives(user, experiments[pool]) if line in lines]
            assert set(found) == lines, f"{pool}: {found}"
            assert f"on {prefix}" in log and f"{min(slots, 4)} slots" in log, log


def pools(user: User) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = user.json("resource-pool", "list")
    return found


def directives(user: User, experiment: int) -> list[str]:
    """The options of the first run's script, as sbatch has them but for the dashes."""
    (script,) = user.home.glob(f"runs/{experiment}.*/job.sbatch")
    subprocess.run(["bash", "-n", str(script)], check=True)
    return [line.removeprefix("#SBATCH --") for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
