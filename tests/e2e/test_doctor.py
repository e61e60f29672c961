"""``det doctor`` where it is used: on a Slurm, and on a machine without one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dethpc.deploy.slurm_dev import Cluster
from tests.cluster import outages
from tests.e2e.conftest import User, make_user, take_down


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    user = make_user(tmp_path, SLURM_CONF=str(slurm.conf))
    yield user
    take_down(user)


def doctor(user: User, *words: str, code: int = 0, **site: Any) -> dict[str, list[dict[str, str]]]:
    """Findings by check."""
    if site:
        words = (*words, "--site", str(user.write("site.yaml", yaml.safe_dump(site))))
    found: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(user.det("doctor", "--json", *words, code=code)):
        found.setdefault(finding["check"], []).append(finding)
    return found


def test_a_small_job_in_each_pool_sees_what_trials_will_see(on_slurm: User) -> None:
    found = doctor(on_slurm, "--check-nodes", "--timeout", "60")
    said = {finding["found"] for check in ("shared_fs", "clock", "python", "reach") for finding in found[check]}
    for pool in ("main", "high"):
        assert any(f"pool {pool}:" in text and f"sees and writes {on_slurm.home}" in text for text in said), said
    assert all(f["level"] == "ok" for check in ("shared_fs", "clock", "python", "reach", "munge") for f in found[check])
    assert [f["level"] for f in found["database"]] == ["ok"] and "waiting for" in on_slurm.errors
    assert found["preemption"][0]["level"] == "note"  # GraceTime=5
    assert found["accounting"][0]["level"] == "note"
    assert not list(on_slurm.home.iterdir())  # and starts no master
    on_slurm.det("master", "up")
    url = on_slurm.master()["url"].partition("//")[2]
    storage = {"type": "shared_fs", "host_path": str(on_slurm.folder), "storage_path": "ckpt/deep"}
    found = doctor(on_slurm, "--check-nodes", "--pool", "main", checkpoint_storage=storage)
    assert [f["found"] for f in found["storage"]] == [
        f"{on_slurm.folder}/ckpt/deep can be written to, from 1 node, too"
    ]
    assert not list(on_slurm.folder.glob(".doctor*"))
    assert [f["found"].partition(" reaches ")[2] for f in found["reach"]] == [url]


def test_what_is_wrong_with_a_site_is_an_error(on_slurm: User) -> None:
    pools = {
        "good": {"partition": "main", "python": "python-of-nobody"},
        "bad": {"partition": "main", "slots_per_node": 5, "gpu_type": "a100"},
        "gone": {},
        "lost": {"partition": "main", "prologue": ["exit 81"]},  # as the script does where it finds no home
        "picky": {"partition": "main", "sbatch_args": ["--licenses=nobody"]},
    }
    found = doctor(on_slurm, "--check-nodes", code=1, pools=pools)
    errors = {check: [f["found"] for f in them if f["level"] == "error"] for check, them in found.items()}
    assert len(errors["pools"]) == 2 and "GPU types there: none" in errors["pools"][0] + errors["pools"][1]
    assert "python-of-nobody" in errors["python"][0]
    assert sorted(errors["shared_fs"]) == [
        "pool lost: DETHPC_HOME is not there",
        "pool picky: sbatch refuses a small job: Invalid license specification",
    ]
    plain = on_slurm.det("doctor", "--quiet", "--site", "site.yaml", code=1)
    assert "no partition 'gone'; there are main, high" in plain and "\nok " not in plain
    assert plain.splitlines()[-1].startswith("2 errors, ")
    on_slurm.det("doctor", "--check-nodes", "--pool", "goood", "--site", "site.yaml", code=1)
    assert "no pool 'goood'" in on_slurm.errors


def test_small_jobs_that_find_no_node_are_taken_back(on_slurm: User, slurm: Cluster) -> None:
    everything = slurm.run(
        "sbatch", "--parsable", "-phigh", "-N4", "--gres=gpu:4", "--output=/dev/null", "--wrap=sleep 99"
    )
    try:
        found = doctor(on_slurm, "--check-nodes", "--timeout", "2", "--pool", "high")
        assert "has not ended within 2 s" in found["shared_fs"][0]["found"]
        assert found["shared_fs"][0]["level"] == "warning"
        queue = slurm.run("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%j")
        assert "det-doctor" not in queue and not list(on_slurm.home.iterdir())
    finally:
        subprocess.run(["scancel", everything.strip()], env=on_slurm.env, check=True)
        outages.wait_idle(slurm)


def test_on_one_machine(user: User) -> None:
    found = doctor(user, "--check-nodes")
    assert found["slurm"][0]["found"].startswith("jobs run on this machine") and "pools" not in found
    user.env["DETHPC_SITE_CONFIG"] = "/nowhere.yaml"
    user.det("doctor", code=1)
    assert "DETHPC_SITE_CONFIG" in user.errors
