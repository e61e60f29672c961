"""What TLS costs: a connection with its proof, requests and reports on a kept connection, a command; over plain HTTP, in turns.

python benchmarks/tls.py

Two masters on this machine, each with a home of its own, are asked alternately. Told are the medians by the clock, which also has
what other work on the machine takes, with the quartiles of the ratios of neighbours, and the mean processor time of client and
master together.
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
from typing import Any

from dethpc.client import MasterFinder, Session
from dethpc.client.proof import OwnerToken

CONFIG = "name: outside\nsearcher: {name: custom, metric: loss}\n"


class Master:
    def __init__(self, home: Path, tls: str) -> None:
        home.mkdir()
        (home / "site.yaml").write_text(f"master: {{tls: {tls}}}\n")
        self.file = home / "master.json"
        self.env = {**os.environ, "DETHPC_HOME": str(home), "DETHPC_SCHEDULER": "local"}
        self.det("master", "up")
        self.pid = int(json.loads(self.file.read_text())["pid"])
        self.token = OwnerToken((home / "token").read_text().strip())
        self.session = self.connect()
        made = self.session.put("/api/v1/experiments/by-external-id/1", {"config": CONFIG, "unmanaged": True})
        new = {"experimentId": made["experiment"]["id"], "hparams": {}, "unmanaged": True}
        trial = self.session.put("/api/v1/trials", {"createTrialRequest": new, "externalTrialId": "1"})["trial"]
        self.trial = trial["id"]
        begun = self.session.post(f"/api/v1/trials/{self.trial}/start", {"trialId": self.trial, "resume": False})
        self.run, self.steps = begun["trialRunId"], 0

    def det(self, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "dethpc.cli", *words], env=self.env, check=True, capture_output=True)

    def connect(self) -> Session:
        return Session(MasterFinder(str(self.file)), self.token)

    def connection(self) -> None:
        """A new one, with the master's proof and the smallest answer there is."""
        session = self.connect()
        session.get("/api/v1/me")
        session.close()

    def kept(self) -> None:
        self.session.get("/api/v1/me")

    def report(self) -> None:
        self.steps += 1
        metrics = {"avgMetrics": {f"metric{i}": self.steps / (i + 1) for i in range(10)}}
        body = {"metrics": metrics, "stepsCompleted": self.steps, "trialRunId": self.run, "trialId": self.trial}
        self.session.post(f"/api/v1/trials/{self.trial}/metrics", {"metrics": body, "group": "training"})

    def listing(self) -> None:
        self.det("experiment", "list")

    def cpu(self) -> float:
        """Seconds of processor time that this process, the commands that it ran and the master have had."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        ran = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + ran.ru_utime + ran.ru_stime + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


WHAT: dict[str, tuple[Callable[[Master], None], int]] = {
    "connection, proof and request": (Master.connection, 100),
    "request on a kept connection": (Master.kept, 300),
    "report of 10 metrics on a kept connection": (Master.report, 200),
    "det experiment list": (Master.listing, 7),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        masters = [Master(Path(folder) / tls, tls) for tls in ("off", "on")]
        try:
            for name, (act, rounds) in WHAT.items():
                show(name, *measured(masters, act, rounds))
        finally:
            for master in masters:
                master.session.close()
                master.det("master", "down")


def measured(masters: list[Master], act: Callable[[Master], None], rounds: int) -> tuple[list[Any], list[Any]]:
    times: list[list[float]] = [[], []]
    cpus = [0.0, 0.0]
    for round in range(-2, rounds):  # the first ones do not count
        for which, master in enumerate(masters):
            busy, start = master.cpu(), time.perf_counter()
            act(master)
            if round >= 0:
                times[which].append(time.perf_counter() - start)
                cpus[which] += master.cpu() - busy
    return times, [total / rounds for total in cpus]


def show(name: str, times: list[list[float]], cpus: list[float]) -> None:
    plain, tls = (statistics.median(one) * 1000 for one in times)
    low, middle, high = statistics.quantiles([b / a for a, b in zip(*times)], n=4)
    print(
        f"{name:42} {plain:7.2f} ms   TLS {tls:7.2f} ms   ratio {middle:.2f} ({low:.2f} to {high:.2f})   "
        f"CPU {cpus[0] * 1000:.2f} and {cpus[1] * 1000:.2f} ms, ratio {cpus[1] / cpus[0]:.2f}"
    )


if __name__ == "__main__":
    main()
