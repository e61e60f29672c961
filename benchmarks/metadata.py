"""What an idle live run costs the shared file system: metadata operations a second, seen by strace.

Trials that only sleep have been idle for a while; strace counts the calls that name a file below DETHPC_HOME, of the master and of
the processes that watch over the trials. Slurm and MLflow keep no directory for a job that they would look at: there is no peer.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from benchmarks.frame import Figure, Row, run
from benchmarks.setting import Local, local, random_search


def rows(options: argparse.Namespace) -> Iterator[Row]:
    trials, settle, seconds = (8, 10, 15) if options.quick else (150, 60, 120)
    os.environ["DETHPC_LOCAL_SLOTS"] = str(trials)
    with local() as master:
        started = _start(master, trials)
        time.sleep(settle)
        asked = _asked([master.pid], master.home, seconds)
        jobs = _asked(started[:8], master.home, seconds)
        master.det("experiment", "kill", "1")
    of_runs = sum("/runs/" in path for path in asked) / trials / seconds
    node = len(jobs) / len(started[:8]) / seconds
    yield Row("an idle live run, the master's looks", "metadata operations a second", Figure(of_runs), limit=0.1)
    yield Row("an idle live run, with those on its node", "metadata operations a second", Figure(of_runs + node))
    rest = len(asked) / seconds - of_runs * trials
    yield Row("the master itself, whatever the number of runs", "metadata operations a second", Figure(rest))


def _start(master: Local, trials: int) -> list[int]:
    """The processes that watch over the trials, once all of them sleep."""
    (master.home / "context").mkdir()
    config = {**random_search(trials, "sleep 3600"), "resources": {"slots_per_trial": 1}}
    (master.home / "config.yaml").write_text(yaml.safe_dump(config))
    master.det("experiment", "create", "config.yaml", "context")
    while True:
        time.sleep(1)
        listed = master.session().get("/api/v1/experiments/1/trials", {"limit": -1})["trials"]
        if [trial["state"] for trial in listed].count("STATE_RUNNING") == trials:
            return _processes(str(master.home))


def _processes(home: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"dethpc.exec" in words and any(word.startswith(home.encode()) for word in words):
            found.append(int(path.parent.name))
    return sorted(found)


def _asked(pids: Sequence[int], home: Path, seconds: float) -> list[str]:
    """The paths below ``home`` that these processes name to the kernel in so many seconds."""
    trace = home / "strace.out"
    words = ["strace", "-f", "-qq", "-e", "trace=%file", "-s", "300", "-o", str(trace)]
    tracer = subprocess.Popen([*words, *(word for pid in pids for word in ("-p", str(pid)))])
    time.sleep(seconds)
    tracer.terminate()
    tracer.wait()
    return [path for path in re.findall(r'"(/[^"]*)"', trace.read_text()) if path.startswith(str(home))]


if __name__ == "__main__":
    run(__doc__, rows)
