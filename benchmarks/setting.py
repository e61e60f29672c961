"""Where benchmarks measure: a master on this machine, and a private Slurm with a user of it."""

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

from benchmarks.frame import cpu_of
from dethpc.client import MasterFinder, Session
from dethpc.client.proof import OwnerToken
from dethpc.deploy import slurm_dev

ROOT = Path(__file__).parents[1]


class Local:
    """A master that runs trials on this machine; ``det`` runs in its home."""

    def __init__(self, home: Path, **site: Any) -> None:
        self.home, self.file = home, home / "master.json"
        self.env = {**os.environ, "DETHPC_HOME": str(home), "DETHPC_SCHEDULER": "local", "PYTHONPATH": str(ROOT)}
        if site:
            (home / "site.yaml").write_text(yaml.safe_dump(site))
        self.det("master", "up")
        self.pid = int(json.loads(self.file.read_text())["pid"])

    def run(self, *words: str) -> str:
        """What this Python says."""
        words = (sys.executable, *words)
        return subprocess.run(words, env=self.env, cwd=self.home, check=True, capture_output=True, text=True).stdout

    def det(self, *words: str) -> str:
        return self.run("-m", "dethpc.cli", *words)

    def session(self) -> Session:
        return Session(MasterFinder(str(self.file)), OwnerToken((self.home / "token").read_text().strip()))

    def cpu(self) -> float:
        """Seconds of processor time that the master has had."""
        return cpu_of(self.pid)

    def memory(self) -> float:
        """Mebibytes that the master holds in memory."""
        return int(Path(f"/proc/{self.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def local(**site: Any) -> Iterator[Local]:
    """A master that is gone without trace afterwards; ``site`` is its site.yaml."""
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as folder:
        made = Local(Path(folder), **site)
        try:
            yield made
        finally:
            made.det("master", "down")


class Site:
    """A private Slurm with one user, whose ``det`` runs in ``folder``."""

    def __init__(self, folder: Path, cluster: slurm_dev.Cluster, window: int) -> None:
        self.folder, self.home, self.cluster = folder, folder / "home", cluster
        self.home.mkdir()
        (folder / "context").mkdir()
        limits = {"fastest_poll": 1, "slowest_poll": 1}
        # A fixed window: these benchmarks let jobs pile up in a partition that is down, where an adaptive one stays small.
        pools = {"main": {"partition": "main", "window": window}}
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
def site(*, window: int = 100, **shape: Any) -> Iterator[Site]:
    """A site that is gone without trace afterwards. ``window``: how many jobs may wait in its Slurm."""
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as name:
        cluster = slurm_dev.up(Path(name) / "slurm", **shape)
        made = Site(Path(name), cluster, window)
        try:
            yield made
        finally:
            down = [sys.executable, "-m", "dethpc.cli", "master", "down"]
            subprocess.run(down, env=made.env, check=False, capture_output=True)
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
