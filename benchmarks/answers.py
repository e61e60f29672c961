"""How long a person waits: ``det`` commands from end to end against a running master, and requests on a kept connection.

python benchmarks/answers.py

Told are medians by the clock and the mean processor time of the command and of the master, beside an empty Python. Where a machine
is busy, only processor times can be compared with the limits.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dethpc.client import MasterFinder, Session
from dethpc.client.proof import OwnerToken

ROUNDS = 9
LIMIT = 120  # ms, of a command
KEPT_LIMIT = 2  # ms, of a request
SCRIPT = """\
from dethpc import core
with core.init() as context:
    for n in range(1, 101):
        context.train.report_training_metrics(n, {"loss": 1 / n})
    context.train.report_validation_metrics(100, {"loss": 0.01})
"""
CONFIG = """\
name: answers
entrypoint: python3 train.py
searcher: {name: random, metric: loss, max_trials: 4, max_concurrent_trials: 2}
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
max_restarts: 0
"""
COMMANDS = [
    "experiment list",
    "experiment describe 1",
    "experiment list-trials 1",
    "trial describe 1",
    "trial logs --tail 10 1",
    "resource-pool list",
    "job list",
    "master info",
    "user whoami",
]


class Spent(NamedTuple):
    """Seconds."""

    clock: float
    command: float
    master: float


class Bench:
    def __init__(self, home: Path) -> None:
        self.home = home
        self._env = {**os.environ, "DETHPC_HOME": str(home), "DETHPC_SCHEDULER": "local"}
        (home / "config.yaml").write_text(CONFIG)
        (home / "context").mkdir()
        (home / "context" / "train.py").write_text(SCRIPT)

    def start(self) -> None:
        self.det("experiment", "create", "config.yaml", "context")
        self.det("experiment", "wait", "1")
        self._pid = int(json.loads((self.home / "master.json").read_text())["pid"])

    def det(self, *words: str) -> None:
        self.run("-m", "dethpc.cli", *words)

    def run(self, *words: str) -> None:
        subprocess.run([sys.executable, *words], env=self._env, cwd=self.home, check=True, capture_output=True)

    def timed(self, act: Callable[[], object]) -> Spent:
        busy, ran, begin = self._master_cpu(), _children(), time.perf_counter()
        act()
        return Spent(time.perf_counter() - begin, _children() - ran, self._master_cpu() - busy)

    def _master_cpu(self) -> float:
        user, system = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _children() -> float:
    ran = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ran.ru_utime + ran.ru_stime


def row(name: str, spent: list[Spent], limit: str = "") -> None:
    clock, command, master = (part for part in zip(*spent))
    print(
        f"{name:28} {statistics.median(clock) * 1000:8.1f} ms   CPU {statistics.mean(command) * 1000:6.1f} ms and the "
        f"master's {statistics.mean(master) * 1000:5.1f} ms{limit}",
        flush=True,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            bench.start()
            spent: dict[str, list[Spent]] = {name: [] for name in ["", *COMMANDS]}
            for round in range(-1, ROUNDS):  # the first one writes bytecode and does not count
                for name, times in spent.items():
                    words = name.split()
                    one = bench.timed(lambda: bench.det(*words) if words else bench.run("-c", "pass"))  # noqa: B023
                    times.extend([one] if round >= 0 else [])
            row("empty python", spent.pop(""))
            for name, times in spent.items():
                row(f"det {name}", times, f"   limit {LIMIT} ms")
            home = bench.home
            session = Session(MasterFinder(str(home / "master.json")), OwnerToken((home / "token").read_text().strip()))
            for path in ("/api/v1/me", "/api/v1/trials/1", "/api/v1/experiments?limit=10"):
                session.get(path)
                kept = [bench.timed(lambda: session.get(path)) for _ in range(200)]  # noqa: B023
                row(f"GET {path}", kept, f"   limit {KEPT_LIMIT} ms")
            session.close()
        finally:
            bench.det("master", "down")


if __name__ == "__main__":
    main()
