"""What the benchmarks on Slurm share: a private cluster, a user of it, and medians."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dethpc.client.session import Session
from dethpc.deploy import slurm_dev

ROOT = Path(__file__).parents[1]


class Site:
    """A private Slurm with one user, whose ``det`` runs in ``folder``."""

    def __init__(self, folder: Path, cluster: slurm_dev.Cluster) -> None:
        self.folder, self.home, self.cluster = folder, folder / "home", cluster
        self.home.mkdir()
        (folder / "context").mkdir()
        limits = {"fastest_poll": 1, "slowest_poll": 1}
        # A fixed window: these benchmarks let jobs pile up in a partition that is down, where an adaptive one stays small.
        pools = {"main": {"partition": "main", "window": 100}}
        text = yaml.safe_dump({"limits": limits, "master": {"host": "127.0.0.1"}, "pools": pools})
        (self.home / "site.yaml").write_text(text)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, **cluster.env, "DETHPC_HOME": str(self.home), "PYTHONPATH": str(ROOT), "PATH": path}

    def run(self, *words: str) -> str:
        done = subprocess.run(words, env=self.env, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def det(self, *words: str) -> str:
        return self.run(sys.executable, "-m", "dethpc.cli", *words)

    def create(self, config: dict[str, Any]) -> int:
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))
        return int(self.det("experiment", "create", "config.yaml", "context").split()[-1])

    def session(self) -> Session:
        url = json.loads((self.home / "master.json").read_text())["url"]
        return Session(url, (self.home / "token").read_text().strip())

    def rpcs(self) -> int:
        """Requests that this user has made so far, by Slurm's own count."""
        report = self.run("sdiag").partition("statistics by user")[2]
        name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        return sum(
            int(line.split("count:")[1].split()[0]) for line in report.splitlines() if line.split()[:1] == [name]
        )


@contextmanager
def site(**shape: Any) -> Iterator[Site]:
    """A site that is gone without trace afterwards."""
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as name:
        cluster = slurm_dev.up(Path(name) / "slurm", **shape)
        made = Site(Path(name), cluster)
        try:
            yield made
        finally:
            subprocess.run([sys.executable, "-m", "dethpc.cli", "master", "down"], env=made.env, check=False)
            slurm_dev.down(Path(name) / "slurm")


def random_search(trials: int, entrypoint: str) -> dict[str, Any]:
    return {
        "name": "benchmark",
        "entrypoint": entrypoint,
        "searcher": {
            "name": "random",
            "metric": "loss",
            "max_trials": trials,
            "max_concurrent_trials": trials,
        },
        "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
        "max_restarts": 0,
    }
