"""What a master's memory holds after 10,000 trials have ended, compared with after the first hundred.

python benchmarks/master_memory.py [EXPERIMENTS [TRIALS]]

A real master serves REST in a process of its own, with its ledger, change logs, reconciler and SQLite. Experiments of so many
trials each (100 of 100 unless told otherwise) come through REST, one after the other. Only the scheduler is not real: it writes
what a job leaves in its run directory (a validation and an end report) and says that the job has ended. The first experiment is
not counted: it fills what is imported and cached once. Two such masters run: the first shows resident memory, the second what
tracemalloc sees, which would make resident memory larger.
"""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from setting import ROOT

from dethpc.client.session import Session
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import JobRecord, JobRequest, JobState, NodeInfo, PoolInfo, QueuedJob
from dethpc.master.daemon import Daemon
from dethpc.master.installation import cluster_id
from dethpc.master.runs.live import Pace
from dethpc.rundir.claim import claim
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


class Instant:
    """A scheduler whose jobs are over when they are submitted."""

    kind, settle = "slurm", 0.0

    def __init__(self, home: Home) -> None:
        self._home, self._ids = home, itertools.count(1)

    def submit(self, job: JobRequest) -> str:
        job_id, run_dir = str(next(self._ids)), self._home.run(job.run_id)
        assert claim(run_dir, job_id)
        attempt = run_dir.attempt(0)
        attempt.make()
        write_json(attempt.started, {"job_id": job_id, "nodes": ["node1"], "at": time.time()})
        with JournalWriter(attempt.journal) as journal:
            journal.append("metrics", {"group": "validation", "steps_completed": 1, "metrics": {"loss": 0.5}})
        write_json(attempt.end, {"finished": True, "exit_code": 0})
        return job_id

    def jobs(self) -> dict[str, JobRecord]:
        return {}

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        return {id: JobRecord(id, "", JobState.COMPLETED, exit_code=0) for id in job_ids}

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        return []

    def cancel(self, job_ids: Sequence[str]) -> None: ...

    def requeue(self, job_id: str) -> None: ...

    def nice(self, values: Mapping[str, int]) -> None: ...

    def start_now(self, job_ids: Sequence[str]) -> None: ...

    def pools(self) -> list[PoolInfo]:
        return [PoolInfo("default", "default", 1, 64, 0, "cpu", default=True)]

    def nodes(self) -> list[NodeInfo]:
        return [NodeInfo("node1", NodeState.IDLE, 64, 0, ("default",), "cpu", cpus=128)]

    def queue(self, partition: str) -> list[QueuedJob]:
        return []


def resident() -> float:
    """Megabytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def held() -> float:
    """Megabytes."""
    return tracemalloc.get_traced_memory()[0] / 1e6


def child(traced: bool, experiments: int, trials: int) -> None:
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as folder:
        home = Home(Path(folder))
        home.make()
        site = SiteConfig(cluster_name="bench", pools={"default": PoolConfig(window=64)})
        pace = Pace(files=0.02, fastest_poll=1.0, slowest_poll=5.0)
        daemon = Daemon(home, site, Instant(home), cluster_id(home), pace)
        thread = threading.Thread(target=daemon.serve, args=("127.0.0.1", 0))
        thread.start()
        try:
            while not home.master_file.exists() or '"url": "http' not in home.master_file.read_text():
                time.sleep(0.1)
            url = home.master_file.read_text().partition('"url": "')[2].partition('"')[0]
            session = Session(url, home.token.read_text().strip())
            if traced:
                tracemalloc.start(8)
            measure = held if traced else resident
            search(session, trials)
            gc.collect()
            before, first = measure(), tracemalloc.take_snapshot() if traced else None
            for _ in range(experiments):
                search(session, trials)
            gc.collect()
            after = measure()
            print(
                f"{'traced' if traced else 'resident'}: {before:.1f} MB before, {after:.1f} MB after "
                f"{experiments * trials:,} ended trials, {after - before:+.2f} MB",
                flush=True,
            )
            if first is not None:
                grown: Counter[str] = Counter()
                for difference in tracemalloc.take_snapshot().compare_to(first, "filename"):
                    grown[str(difference.traceback).replace(str(ROOT), "")] += difference.size_diff
                for place, size in grown.most_common(5):
                    print(f"  {size / 1e6:+.2f} MB {place}", flush=True)
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


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:3]]
    experiments, trials = [*sizes, *[100, 100][len(sizes) :]]
    if len(sys.argv) > 3:
        child(sys.argv[3] == "traced", experiments, trials)
        return
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for mode in ("resident", "traced"):
        subprocess.run([sys.executable, __file__, str(experiments), str(trials), mode], env=env, check=True)


if __name__ == "__main__":
    main()
