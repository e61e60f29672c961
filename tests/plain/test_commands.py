"""Commands that are no sbatch scripts, as entrypoints: what Slurm tells them of their job, and where their ranks are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of
from tests.plain.test_plain import DIFFERENCES, OTHERWISE, SCRIPTS, shell

CHOSEN_BY_DETHPC = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST"}
"""Variables whose values are those of another job."""


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(slurm, tmp_path) as user:
        shutil.rmtree(user.folder / "context")
        shutil.copytree(SCRIPTS, user.folder / "context")
        user.env["OMP_NUM_THREADS"] = "1"
        yield user


def finish(user: User, entrypoint: str, slots: int, state: str = "COMPLETED") -> str:
    """The log of a trial of this entrypoint."""
    number = user.create(
        entrypoint=entrypoint, resources={"slots_per_trial": slots}, searcher={"name": "single", "metric": "loss"}
    )
    user.wait_state(number, "COMPLETED", "ERROR", "CANCELED")
    log = user.log(number)
    assert user.experiment(number)["state"] == f"STATE_{state}", log
    return log


def probes(out: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in out.glob("*.json")]
    return sorted(found, key=lambda probe: int(probe["env"]["SLURM_PROCID"]))


@pytest.mark.parametrize(
    ("nodes", "start"), [pytest.param(1, "", marks=pytest.mark.everything), (2, "srun --nodes=2 --ntasks-per-node=1 ")]
)
def test_a_command_sees_what_a_batch_script_or_srun_with_one_task_per_node_tells_it(
    user: User, tmp_path: Path, nodes: int, start: str
) -> None:
    seen = {}
    for way in ("trial", "plain"):
        (tmp_path / way).mkdir()
        user.env["PLAIN_OUT"] = str(tmp_path / way)
        if way == "trial":
            finish(user, "python3 probe.py command", 4 * nodes)
        else:
            job = ["--wait", "--output=/dev/null", f"--nodes={nodes}", "--cpus-per-task=4", "--gres=gpu:4"]
            env = shell(user, tmp_path / way)
            words = ["sbatch", *job, f"--wrap={start}python3 probe.py command"]
            subprocess.run(words, cwd=SCRIPTS, env=env, check=True)
        seen[way] = probes(tmp_path / way)
    assert len(seen["plain"]) == len(seen["trial"]) == nodes
    for plain, trial in zip(seen["plain"], seen["trial"]):
        differ = {
            name: (plain["env"].get(name), trial["env"].get(name))
            for name in {*plain["env"], *trial["env"]} - set(DIFFERENCES) - OTHERWISE - CHOSEN_BY_DETHPC
            if re.sub(r"\bn\d", "n", plain["env"].get(name, "-")) != re.sub(r"\bn\d", "n", trial["env"].get(name, "-"))
        }
        assert not differ


@pytest.mark.everything
@pytest.mark.skipif("not __import__('importlib').util.find_spec('lightning')", reason="needs Lightning")
def test_one_process_starts_its_second_one_itself_and_trains_on_two_devices(user: User, tmp_path: Path) -> None:
    user.env["PLAIN_OUT"] = str(tmp_path)
    finish(user, "python3 lit.py 1", 2)
    results = sorted((tmp_path / "results").read_text().splitlines())
    assert results == [f"rank {rank} of 2 by LightningEnvironment" for rank in (0, 1)]


def test_one_process_is_a_cluster_of_jaxs_on_two_nodes_and_none_on_one(user: User, tmp_path: Path) -> None:
    user.env["PLAIN_OUT"] = str(tmp_path)
    finish(user, "python3 jax_cluster.py one", 2)
    finish(user, "python3 jax_cluster.py two", 8)
    assert sorted((tmp_path / "results").read_text().splitlines()) == [
        "jax one: no cluster",
        "jax two: process 0 of 2, local 0",
        "jax two: process 1 of 2, local 0",
    ]


@pytest.mark.everything
def test_ranks_that_srun_starts_for_the_mpi_launcher_stand_in_blocks(user: User, tmp_path: Path) -> None:
    user.env["PLAIN_OUT"] = str(tmp_path)
    finish(user, "python3 -m determined.launch.mpi --mpi=pmi2 -- python3 probe.py rank", 8)
    found = [probe["env"] for probe in probes(tmp_path)]
    assert [env["PMI_RANK"] for env in found] == [str(rank) for rank in range(8)]
    assert [(env["SLURM_NODEID"], env["SLURM_LOCALID"]) for env in found] == [
        (str(node), str(local)) for node in (0, 1) for local in range(4)
    ]
    assert {env["CUDA_VISIBLE_DEVICES"] for env in found} == {"0,1,2,3"}
