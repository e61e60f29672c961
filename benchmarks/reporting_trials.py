"""What the benchmarks of many reporting trials share: a real master in a process of its own, whose jobs all run and do nothing.

Only the scheduler is not real: it writes what a job leaves in its run directory when it starts, and lets it run for ever. Who
measures writes to the journals and rings as training code does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.stand_in import StandIn
from dethpc.client.session import Session
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.facts import Attempt
from dethpc.domain.ports import ArrayRequest, JobRecord, JobRequest, JobState
from dethpc.master import listening
from dethpc.master.daemon import Daemon
from dethpc.master.installation import cluster_id
from dethpc.master.watching.live_runs import Pace
from dethpc.rundir.home import Home
from dethpc.state import reading, rows

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")

CONFIG = """
name: reporting
entrypoint: python3 train.py
searcher: {{name: random, metric: loss, max_trials: {trials}, max_concurrent_trials: {trials}}}
hyperparameters: {{lr: {{type: double, minval: 0.0, maxval: 1.0}}}}
resources: {{slots_per_trial: 1}}
"""


class Endless(StandIn):
    """A scheduler whose jobs start when they are submitted, and run until they are cancelled."""

    def __init__(self, home: Home) -> None:
        super().__init__(4096)
        self._home = home
        self._running: dict[str, JobRecord] = {}

    largest_array = 0

    def submit_array(self, array: ArrayRequest) -> list[str]:
        raise NotImplementedError

    def submit(self, job: JobRequest) -> str:
        job_id, _ = self.started(self._home, job)
        self._running[job_id] = JobRecord(job_id, job.name, JobState.RUNNING, nodes=("node1",))
        return job_id

    def jobs(self) -> dict[str, JobRecord]:
        return dict(self._running)

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        return {id: JobRecord(id, "", JobState.CANCELLED) for id in job_ids if id not in self._running}

    def cancel(self, job_ids: Sequence[str]) -> None:
        for id in job_ids:
            self._running.pop(id, None)


@dataclass
class Master:
    """A master that runs, with its trials."""

    home: Home
    pid: int
    url: str
    token: str
    runs: list[str]  # ids of the trials' runs

    def session(self) -> Session:
        return Session(self.url, self.token, timeout=120)

    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / TICKS

    def counted(self) -> list[int]:
        """How many reports of each run are in the database. Waits until they are as many as its journal has."""
        until = time.monotonic() + 60
        while True:
            with reading(self.home.database) as connection:
                applied = {row.run_id: row.applied_seq for row in rows.read(connection, Attempt)}
            found = [applied.get(run, 0) for run in self.runs]
            paths = (self.home.run(run).attempt(0).journal for run in self.runs)
            written = [path.read_bytes().count(b"\n") if path.exists() else 0 for path in paths]
            if found == written or time.monotonic() > until:
                return found
            time.sleep(0.5)

    def resident(self) -> float:
        """MB."""
        return int(Path(f"/proc/{self.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


class Clients:
    """Starts the processes of ``reporting_clients``, which report to ``master``."""

    def __init__(self, master: Master) -> None:
        self._home, self._token = str(master.home.root), master.token

    def start(self, kind: str, **job: Any) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "benchmarks.reporting_clients"]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdin is not None
        if "runs" in job:
            job["home"] = self._home
        process.stdin.write(json.dumps({"kind": kind, "token": self._token, **job}) + "\n")
        process.stdin.flush()
        return process

    def ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

    def result(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        out, _ = process.communicate()
        if process.returncode:
            raise RuntimeError("a client failed")
        return dict(json.loads(out))

    def run(self, kind: str, **job: Any) -> dict[str, Any]:
        return self.result(self.start(kind, **job))


@contextmanager
def master(trials: int) -> Iterator[Master]:
    """One with as many trials, all of which run. It is gone without trace afterwards."""
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as folder:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(Path(folder) / "output", "wb") as output:
            process = subprocess.Popen([sys.executable, __file__, folder], env=env, stderr=output)
        try:
            home = Home(Path(folder) / "home")
            while not home.master_file.exists() or '"url": "http' not in home.master_file.read_text():
                if process.poll() is not None:
                    raise RuntimeError((Path(folder) / "output").read_text())
                time.sleep(0.1)
            url = home.master_file.read_text().partition('"url": "')[2].partition('"')[0]
            made = Master(home, process.pid, url, home.token.read_text().strip(), [])
            if trials:
                _begin(made, trials)
            yield made
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _begin(master: Master, trials: int) -> None:
    session = master.session()
    made = session.post("/api/v1/experiments", {"config": CONFIG.format(trials=trials), "activate": True})
    while True:
        found = session.get(f"/api/v1/experiments/{made['experiment']['id']}/trials", {"limit": 0})["trials"]
        if len(found) == trials and all(trial["state"] == "STATE_RUNNING" for trial in found):
            break
        time.sleep(0.2)
    master.runs = [f"{made['experiment']['id']}.{trial['id']}.1" for trial in found]
    session.close()


def _serve(folder: Path) -> None:
    home = Home(folder / "home")
    home.make()
    site = SiteConfig(cluster_name="bench", pools={"default": PoolConfig(window=4096)})
    daemon = Daemon(home, site, Endless(home), cluster_id(home), Pace(submit_at_once=4))
    signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
    thread = threading.Thread(target=daemon.serve, args=(listening.named("127.0.0.1", "the benchmark"), 0))
    thread.start()
    thread.join()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
