"""What a master's memory holds after many trials have ended, compared with after the first ones.

A real master serves REST in a process of its own, with its ledger, change logs, reconciler and SQLite. Experiments of so
many trials each come through REST, one after the other. Only the scheduler is not real: it writes what a job leaves in its run
directory (a validation and an end report) and says that the job has ended. The first experiment is not counted: it fills what is
imported and cached once. Two such masters run: the first shows resident memory, the second what tracemalloc sees, which would make
resident memory larger.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.frame import Figure, Row, run
from benchmarks.setting import ROOT
from benchmarks.stand_in import StandIn
from dethpc.client.session import Session
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.ports import ArrayRequest, JobRecord, JobRequest, JobState
from dethpc.domain.reports import ReportKind
from dethpc.master import listening
from dethpc.master.daemon import Daemon
from dethpc.master.installation import cluster_id
from dethpc.master.watching.live_runs import Pace
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter

CONFIG = """
name: ends
entrypoint: python3 train.py
searcher: {{name: random, metric: loss, max_trials: {trials}, max_concurrent_trials: {trials}}}
hyperparameters: {{lr: {{type: double, minval: 0.0, maxval: 1.0}}}}
resources: {{slots_per_trial: 1}}
"""


class Instant(StandIn):
    """A scheduler whose jobs are over when they are submitted."""

    def __init__(self, home: Home) -> None:
        super().__init__(64)
        self._home = home

    largest_array = 0

    def submit_array(self, array: ArrayRequest) -> list[str]:
        raise NotImplementedError

    def submit(self, job: JobRequest) -> str:
        job_id, attempt = self.started(self._home, job)
        with JournalWriter(attempt.journal) as journal:
            journal.append(ReportKind.METRICS, {"group": "validation", "steps_completed": 1, "metrics": {"loss": 0.5}})
        write_json(attempt.end, {"finished": True, "exit_code": 0})
        return job_id

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        return {id: JobRecord(id, "", JobState.COMPLETED, exit_code=0) for id in job_ids}


def resident() -> float:
    """Megabytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def held() -> float:
    """Megabytes."""
    return tracemalloc.get_traced_memory()[0] / 1e6


def child(traced: bool, experiments: int, trials: int) -> tuple[float, float]:
    """Megabytes before and after."""
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as folder:
        home = Home(Path(folder))
        home.make()
        site = SiteConfig(cluster_name="bench", pools={"default": PoolConfig(window=64)})
        pace = Pace(files=0.02, fastest_poll=1.0, slowest_poll=5.0)
        daemon = Daemon(home, site, Instant(home), cluster_id(home), pace)
        thread = threading.Thread(target=daemon.serve, args=(listening.named("127.0.0.1", "the benchmark"), 0))
        thread.start()
        try:
            while not home.master_file.exists() or '"url": "http' not in home.master_file.read_text():
                time.sleep(0.1)
            url = home.master_file.read_text().partition('"url": "')[2].partition('"')[0]
            session = Session(url, home.token.read_text().strip())
            if traced:
                tracemalloc.start()
            measure = held if traced else resident
            search(session, trials)
            gc.collect()
            before = measure()
            for _ in range(experiments):
                search(session, trials)
            gc.collect()
            return before, measure()
        finally:
            session.close()
            daemon.stop()
            thread.join()


def search(session: Session, trials: int) -> None:
    """One experiment, from its creation to its end."""
    id = session.post("/api/v1/experiments", json={"config": CONFIG.format(trials=trials), "activate": True})
    path = f"/api/v1/experiments/{id['experiment']['id']}"
    while session.get(path)["experiment"]["state"] != "STATE_COMPLETED":
        time.sleep(0.05)


LIMITS = {"resident": 6.0, "traced": 0.5}  # MB; resident memory is taken by the page


def rows(options: argparse.Namespace) -> Iterator[Row]:
    experiments, trials = (2, 25) if options.quick else (100, 100)
    for mode, limit in LIMITS.items():
        command = [sys.executable, "-m", "benchmarks.master_memory", "--child", mode, str(experiments), str(trials)]
        said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        before, after = json.loads(said.splitlines()[-1])
        peers = {f"after {trials}": Figure(before), f"after {(experiments + 1) * trials:,}": Figure(after)}
        yield Row(
            f"{mode} memory grows with {experiments * trials:,} ended trials by",
            "MB",
            Figure(after - before),
            peers,
            limit,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2] == "traced", *map(int, sys.argv[3:]))))
    else:
        run(__doc__, rows)
