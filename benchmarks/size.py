"""What lists cost in a large installation: every list that a master serves, on 100,000 ended trials (see ``big_home``).

A real master serves the home over HTTP in a process of its own; only its scheduler is not real: it says that 500 jobs run. Told
for each list: p50 and p95 by the clock over one kept connection, and the bytes of its answer; for the master: its processor time
from its start to its first answer, which waits for nothing else, and its resident memory, beside those of a master with an empty
home. --quick: a home ten times smaller.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import big_home
from benchmarks.frame import Figure, Row, Spent, cpu_of, run, slowness
from benchmarks.setting import ROOT
from benchmarks.stand_in import StandIn
from dethpc.client.session import Session
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.ids import job_name
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import JobRecord, JobState, NodeInfo
from dethpc.rundir.home import Home
from dethpc.state import queries, reading

LIMIT = 50  # ms at p95, of a list
START = 3.0  # seconds of processor time to the first answer
ROUNDS = 30
SHOWN = 15  # lists that cost most


class Still(StandIn):
    """A scheduler whose jobs run on and on."""

    def __init__(self, jobs: Sequence[tuple[str, str]]) -> None:
        super().__init__(big_home.LIVE)
        self._jobs = {job: JobRecord(job, name, JobState.RUNNING, nodes=("node1",)) for job, name in jobs}

    def jobs(self) -> dict[str, JobRecord]:
        return dict(self._jobs)

    def nodes(self) -> list[NodeInfo]:
        return [replace(node, state=NodeState.ALLOCATED) for node in super().nodes()]


def serve(home: Home) -> None:
    """A master, until it is told to end."""
    from dethpc.master.__main__ import COLLECTIONS

    gc.set_threshold(*COLLECTIONS)
    from dethpc.master import listening
    from dethpc.master.daemon import Daemon
    from dethpc.master.installation import cluster_id
    from dethpc.master.serve import settle
    from dethpc.master.watching.live_runs import Pace

    jobs = []
    if home.database.exists():
        with reading(home.database_url) as connection:
            live = [run for run, _ in queries.live_runs(connection)]
        jobs = [(str(run.scheduler_job_id), job_name(cluster_id(home), run.id)) for run in live]
    site = SiteConfig(cluster_name="bench", pools={"default": PoolConfig(window=big_home.LIVE)})
    daemon = Daemon(home, site, Still(jobs), cluster_id(home), Pace())
    signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
    settle()
    daemon.serve(listening.named("127.0.0.1", "the benchmark"), 0)


class Master:
    """A master of ``home`` in a process of its own. ``started``: what it took until its first answer."""

    def __init__(self, home: Home) -> None:
        home.make()
        home.master_file.unlink(missing_ok=True)
        self._home, begin = home, time.perf_counter()
        words = [sys.executable, "-m", "benchmarks.size", "--serve", str(home.root)]
        self._process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        while True:
            try:
                self.session = self.another()
                self.session.get("/api/v1/me")
                break
            except Exception as error:
                if self._process.poll() is not None or time.perf_counter() - begin > 120:
                    raise SystemExit(f"the master did not start: {error}") from None
                time.sleep(0.01)
        self.started = Spent(time.perf_counter() - begin, self.busy)

    def another(self) -> Session:
        url = json.loads(self._home.master_file.read_text())["url"]
        return Session(url, self._home.token.read_text().strip())

    @property
    def resident(self) -> float:
        """Megabytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6

    @property
    def busy(self) -> float:
        """Seconds of processor time so far."""
        return cpu_of(self._process.pid)

    def end(self) -> None:
        self.session.close()
        self._process.terminate()
        self._process.wait()


def lists(home: Home) -> list[str]:
    """Every list, as a person or a page asks for it: in each order, with each filter."""
    with reading(home.database_url) as connection:
        last = queries.list_experiments(
            connection, queries.ExperimentFilter(), queries.Order("id", True), queries.Page()
        )[0]
        ended = next(row.id for row in last if row.state.terminal and row.name == "ended-10")
        running, large = last[0].id, 2
        trial = queries.list_trials(connection, running, frozenset(), queries.Order(), queries.Page())[0][0].id
        checkpoint = queries.checkpoints_of_trial(connection, trial)[0].uuid
    page = "limit=100"
    found = [f"/api/v1/experiments?{page}&sortBy=SORT_BY_{key.upper()}" for key in _experiment_keys()]
    found += [
        f"/api/v1/experiments?{page}",
        f"/api/v1/experiments?{page}&offset=-100",
        f"/api/v1/experiments?{page}&states=STATE_ACTIVE",
        f"/api/v1/experiments?{page}&states=RUNNING",
        f"/api/v1/experiments?{page}&states=STATE_COMPLETED&orderBy=ORDER_BY_DESC",
        f"/api/v1/experiments?{page}&name=rung",
        f"/api/v1/experiments?{page}&labels=size",
        f"/api/v1/experiments?{page}&archived=false",
        "/api/v1/experiments?limit=-1",
        "/api/v1/experiments?limit=-2",
        "/api/v1/experiments/labels",
        "/api/v1/job-queues?limit=100",
        "/api/v1/job-queues-v2?limit=100",
        "/api/v1/job-queues/stats",
        "/api/v1/resource-pools",
        "/api/v1/resource-pools/goodput",
        "/api/v1/agents",
        "/api/v1/tasks",
        "/api/v1/tasks/count",
        "/api/v1/waiting",
        "/api/v1/users",
        "/api/v1/tokens",
        "/api/v1/templates",
        "/api/v1/workspaces",
        "/api/v1/workspaces/1",
        "/api/v1/workspaces/1/projects",
        "/api/v1/projects/1",
        "/api/v1/master",
        f"/api/v1/trials/{trial}",
        f"/api/v1/trials/{trial}/workloads?{page}",
        f"/api/v1/trials/{trial}/workloads?{page}&offset=5000&orderBy=ORDER_BY_DESC",
        f"/api/v1/trials/{trial}/checkpoints?{page}",
        f"/api/v1/trials/{trial}/goodput",
        f"/api/v1/trials/{trial}/waiting",
        f"/api/v1/trials/time-series?trialIds={trial}&maxDatapoints=100",
        f"/api/v1/scheduler-jobs/{trial}",
        f"/api/v1/checkpoints/{checkpoint}",
    ]
    for id in (1, large, ended, running):
        at = f"/api/v1/experiments/{id}"
        found += [
            at,
            f"{at}/trials?{page}",
            f"{at}/trials?{page}&offset=-100",
            f"{at}/trials?{page}&states=STATE_COMPLETED",
            f"{at}/trials?{page}&states=RUNNING",
            f"{at}/checkpoints?{page}",
            f"{at}/checkpoints?{page}&states=STATE_COMPLETED",
            f"{at}/checkpoints?{page}&sortByAttr=SORT_BY_SEARCHER_METRIC",
            f"{at}/validation-history",
            f"{at}/searcher/best_searcher_validation_metric",
            f"{at}/searcher/progress",
            f"{at}/search?limit=20",
            f"{at}/goodput",
            f"{at}/waiting",
            f"/api/v1/experiments/metrics-stream/metric-names?ids={id}",
        ]
    for key in queries.TRIAL_KEYS:
        found.append(f"/api/v1/experiments/{running}/trials?{page}&sortBy=SORT_BY_{key.upper()}")
        found.append(f"/api/v1/experiments/1/trials?{page}&sortBy=SORT_BY_{key.upper()}&orderBy=ORDER_BY_DESC")
    for key in queries.CHECKPOINT_KEYS:
        found.append(f"/api/v1/experiments/{large}/checkpoints?{page}&sortByAttr=SORT_BY_{key.upper()}")
    return found


def _experiment_keys() -> list[str]:
    return [*queries.EXPERIMENT_KEYS, "searcher_metric_val"]


def timed(master: Master, path: str, rounds: int, session: Session | None = None) -> dict[str, Any]:
    """Processor time is the whole master's, whatever else it did meanwhile. ``session``: that of the owner, unless it is given."""
    session = session or master.session
    spent, size, busy = [], 0, master.busy
    for n in range(rounds + 1):
        begin = time.perf_counter()
        size = len(session.raw(path))
        if n:  # the first one warms caches
            spent.append((time.perf_counter() - begin) * 1000)
        if sum(spent) > 3000:
            break
    cpu = (master.busy - busy) * 1000 / (len(spent) + 1)
    spent.sort()
    return {
        "cpu_ms": cpu,
        "p50_ms": statistics.median(spent),
        "p95_ms": spent[int(0.95 * (len(spent) - 1))],
        "bytes": size,
    }


def beside(master: Master, path: str, seconds: float) -> tuple[float, float, float]:
    """How long another client waits for something small while this list is asked for again and again: median, p99, most, in ms."""
    over, waits = threading.Event(), []
    other = master.another()

    def ask() -> None:
        while not over.is_set():
            begin = time.perf_counter()
            other.get("/api/v1/experiments", {"limit": 1})
            waits.append((time.perf_counter() - begin) * 1000)
            time.sleep(0.002)

    thread = threading.Thread(target=ask)
    thread.start()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        master.session.raw(path)
    over.set()
    thread.join()
    other.close()
    waits.sort()
    return statistics.median(waits), waits[int(0.99 * (len(waits) - 1))], waits[-1]


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    if asked.serve:
        serve(Home(asked.serve))
        return
    home = big_home.made(10 if asked.quick else 1)
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as folder:
        empty = Master(Home(folder))
        idle = empty.started.cpu, empty.resident
        empty.end()
    Master(home).end()  # the first start of a home writes its change logs
    master = Master(home)
    try:
        name, peers, note = (
            "start to the first answer",
            {"an empty home": Figure(idle[0])},
            f"{master.started.clock:.1f} s by the clock",
        )
        yield Row(name, "s of processor time", Figure(master.started.cpu), peers, START, note=note)
        yield Row("memory of the master", "MB", Figure(master.resident), {"an empty home": Figure(idle[1])})
        found = {path: timed(master, path, 8 if asked.quick else ROUNDS) for path in lists(home) if asked.only in path}
        for path in sorted(found, key=lambda path: -found[path]["cpu_ms"])[:SHOWN]:
            each = found[path]
            note = f"p50 {each['p50_ms']:.1f} ms, processor time {each['cpu_ms']:.1f} ms, {each['bytes']:,} bytes"
            yield Row(f"p95 of {path}", "ms", Figure(each["p95_ms"]), limit=LIMIT, note=note)
        most = LIMIT * slowness()
        over = sum(each["p95_ms"] > most for each in found.values())
        yield Row(f"lists of {len(found)} over {most:.0f} ms at p95", "", Figure(over), limit=0)
        for path in sorted(found, key=lambda path: -found[path]["cpu_ms"])[:3]:
            waits = beside(master, path, 2.0 if asked.quick else 5.0)
            note = f"p50 {waits[0]:.1f} ms, at most {waits[2]:.1f} ms"
            yield Row(f"p99 of another client's wait during {path}", "ms", Figure(waits[1]), limit=50, note=note)
    finally:
        master.end()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="lists whose path contains this")
    parser.add_argument("--serve", help=argparse.SUPPRESS)


if __name__ == "__main__":
    run(__doc__, rows, options)
