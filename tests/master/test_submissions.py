"""The files of a run before it starts, and its batch script, in each container runtime: kept in ``submissions/``, one folder each.

Jobs that wait in a queue outlive the master that wrote these, so a change here needs a reader that takes both. DETHPC_DRAW_GOLDEN=1
writes them anew. What differs from run to run stands there as NAMES of what it is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dethpc
from dethpc.config.site import SiteConfig
from dethpc.containers import RUNTIMES
from dethpc.domain.ports import PoolInfo
from dethpc.master.daemon import Daemon
from dethpc.master.installation import cluster_id
from dethpc.master.watching.live_runs import Pace
from dethpc.rundir.home import Home
from tests.master.conftest import Served, serving
from tests.master.fake_scheduler import FakeScheduler

FOLDER = Path(__file__).with_name("submissions")
DRAW = os.environ.get("DETHPC_DRAW_GOLDEN") == "1"
CONFIG = {
    "name": "golden",
    "entrypoint": "python3 train.py --lr {lr}",
    "searcher": {"name": "single", "metric": "loss"},
    "hyperparameters": {"lr": 0.1},
    "reproducibility": {"experiment_seed": 7},
    "bind_mounts": [{"host_path": "/data", "container_path": "data", "read_only": True}],
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/checkpoints"},
}


class Pools(FakeScheduler):
    def pools(self) -> list[PoolInfo]:
        return [PoolInfo(name, name, 2, 8, 0, "cuda", default=name == "none") for name in RUNTIMES]


@pytest.fixture(params=list(RUNTIMES))
def submitted(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A master of a cluster with a pool for each runtime, with one trial on two nodes that waits to be submitted."""
    for name, value in (("USER", "ann"), ("LOGNAME", "ann"), ("HOME", str(tmp_path / "ann"))):
        monkeypatch.setenv(name, value)
    pools = {name: {"partition": name, "slots_per_node": 4, "slot_type": "cuda"} for name in RUNTIMES}
    pools = {name: {**pool, "container": {"runtime": name}} if name != "none" else pool for name, pool in pools.items()}
    site = SiteConfig.model_validate({"cluster_name": "testbed", "pools": pools})
    home = Home(tmp_path / "home")
    home.make()
    with serving(Daemon(home, site, Pools(slots=8), cluster_id(home), Pace())) as served:
        image = tmp_path / ("debian.sqsh" if request.param in ("enroot", "pyxis") else "debian")
        python = image if image.suffix else image / "usr/bin/python3"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch(mode=0o755)
        environment = {"environment_variables": ["ODD=a 'b' $c"], "image": str(image)}
        config = {
            **CONFIG,
            "environment": environment,
            "resources": {"resource_pool": request.param, "slots_per_trial": 8},
        }
        served.session.post(
            "/api/v1/experiments", {"config": json.dumps(config), "activate": True, "modelDefinition": []}
        )
        yield served


def named(text: str, served: Served) -> str:
    """``text`` without what differs from run to run."""
    home = str(served.daemon.installation.home.root)
    for value, name in (
        (home, "HOME"),
        (str(served.daemon.installation.home.root.parent), "FOLDER"),
        (str(Path(dethpc.__file__).parents[1]), "INSTALLED"),
        (served.daemon.installation.cluster_id, "CLUSTER"),
        (dethpc.__version__, "VERSION"),
    ):
        text = text.replace(value, name)
    text = re.sub(r"harness-[0-9a-f]+", "harness-DIGEST", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "SHA256", text)
    text = re.sub(r'("(?:token|worker_secret)": )"[^"]+"', r'\1"SECRET"', text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
    text = re.sub(r"(?<=_golden_)[0-9a-f]{8}\b", "DIGEST", text)
    return re.sub(r"\b1[78]\d{8}(\.\d+)?\b", "TIME", text)


def files_of(served: Served, request: Any) -> dict[str, str]:
    folder: Path = request.run_dir
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != request.script)
    texts = {str(path.relative_to(folder)): path.read_text() for path in paths}
    texts["spec.json"] = json.dumps(json.loads(texts["spec.json"]), indent=1) + "\n"
    texts["script"] = request.script.read_text()
    texts["environment"] = "\n".join(
        sorted(name for name in request.env if name.startswith(("DET", "SBATCH", "SLURM")))
    )
    return {name: named(text, served) for name, text in texts.items() if text}


def test_the_files_of_a_run_are_those_that_queued_jobs_know(submitted: Served, request: pytest.FixtureRequest) -> None:
    (run,) = submitted.daemon.ledger.state.runs.values()
    files = files_of(submitted, submitted.daemon.builder.prepare([run])(run))
    folder = FOLDER / request.node.callspec.params["submitted"]
    if DRAW:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    for name, text in files.items():
        assert text.splitlines() == (folder / name).read_text().splitlines()
    assert set(files) == {path.name for path in folder.iterdir()}
