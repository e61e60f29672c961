"""Looking for lines in a log of 300 MB, beside grep, tail and head on the same file; and how long others wait meanwhile.

python benchmarks/log_search.py [MEGABYTES]

A master on this machine is asked over HTTP, in turns with the tool. Told are medians by the clock and the processor time of the
master and of the tool, with the ratio of neighbours and the limit that it should keep. The file is in the page cache for both.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from dethpc.client import MasterFinder, Session
from dethpc.client.proof import OwnerToken
from dethpc.rundir.layout import RunDir

ROUNDS = 7
LIMIT = 5.0
LIMIT_WAIT = 50  # ms
BEGIN = int(datetime(2025, 11, 13, 8, tzinfo=timezone.utc).timestamp())
PER_SECOND = 200  # lines

CONFIG = """\
name: log
entrypoint: echo hello
searcher: {name: single, metric: loss, max_length: {batches: 1}}
max_restarts: 0
"""


@contextmanager
def master(home: Path) -> Iterator[tuple[Session, Path]]:
    """A master with one trial that has ended, and the file of its log."""
    env = {**os.environ, "DETHPC_HOME": str(home), "DETHPC_SCHEDULER": "local"}

    def det(*words: str) -> str:
        words = (sys.executable, "-m", "dethpc.cli", *words)
        return subprocess.run(words, env=env, cwd=home, check=True, capture_output=True, text=True).stdout

    (home / "config.yaml").write_text(CONFIG)
    (home / "context").mkdir()
    try:
        det("experiment", "create", "config.yaml", "context", "--follow")
        session = connect(home)
        yield session, RunDir(next((home / "runs").iterdir())).attempt(0).log(0)
        session.close()
    finally:
        det("master", "down")


def fill(log: Path, size: int) -> None:
    n = 0
    with open(log, "w") as file:
        while file.tell() < size:
            for _ in range(10_000):
                second = datetime.fromtimestamp(BEGIN + n // PER_SECOND, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
                level = "ERROR" if n % 300_000 == 150_000 else "INFO"
                words = f"epoch {n // 1000} batch {n % 1000} loss={n * 7919 % 10007 / 10007:.5f} lr=0.001"
                if n == 500_000:
                    words += " out of memory"
                file.write(f"{second}.{n % PER_SECOND * 5:03d}Z\t{level}\t{n % 4}\tstdout\t{words}\n")
                n += 1


class Others:
    """Another client that asks something small again and again; how long it waited at most, in seconds."""

    def __init__(self, session: Session) -> None:
        self.waits: list[float] = []
        self._session, self._over = session, threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._over.is_set():
            begin = time.perf_counter()
            self._session.get("/api/v1/experiments", {"limit": 1})
            self.waits.append(time.perf_counter() - begin)
            time.sleep(0.002)

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


class Spent(NamedTuple):
    """Seconds by the clock and of processor time."""

    clock: float
    cpu: float


class Asked(NamedTuple):
    what: str
    params: dict[str, Any]
    tool: list[str]
    limit: float | None = None


class Bench:
    def __init__(self, home: Path, session: Session, log: Path) -> None:
        self._home, self._session, self._log = home, session, log
        self._pid = int(json.loads((home / "master.json").read_text())["pid"])

    def ours(self, params: dict[str, Any]) -> tuple[Spent, int]:
        """And how many lines came."""
        busy, begin = self._master_cpu(), time.perf_counter()
        count = sum(1 for _ in self._session.stream("/api/v1/trials/1/logs", params=params))
        return Spent(time.perf_counter() - begin, self._master_cpu() - busy), count

    def theirs(self, tool: list[str]) -> Spent:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*tool, str(self._log)], stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Spent(time.perf_counter() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    def compare(self, asked: Asked) -> None:
        ours, theirs, lines = [], [], 0
        for _ in range(ROUNDS):
            spent, lines = self.ours(asked.params)
            ours.append(spent)
            theirs.append(self.theirs(asked.tool))
        row(f"{asked.what} ({lines})", ours, asked.tool[0], theirs, asked.limit)

    def others(self, asked: Asked) -> None:
        """How long another client waits while somebody asks this, and for as long while nobody does."""
        for name in ("quiet", "meanwhile"):
            with Others(connect(self._home)) as others:
                if name == "quiet":
                    time.sleep(1)
                for _ in range(3 if name == "meanwhile" else 0):
                    self.ours(asked.params)
            waits = sorted(others.waits)
            print(
                f"    another client waits, {name:18} {statistics.median(waits) * 1000:9.1f} ms   longest "
                f"{waits[-1] * 1000:.1f} ms   of {len(waits)}   limit {LIMIT_WAIT} ms",
                flush=True,
            )

    def _master_cpu(self) -> float:
        user, system = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def row(name: str, ours: list[Spent], peer: str, theirs: list[Spent], limit: float | None) -> None:
    def middle(values: list[Spent]) -> str:
        clock, cpu = (statistics.median(part) * 1000 for part in zip(*values))
        return f"{clock:8.1f} ms (CPU {cpu:7.1f})"

    ratio = statistics.median(a.clock / b.clock for a, b in zip(ours, theirs))
    bound = "" if limit is None else f"   limit {limit:g}"
    print(f"{name:44} {middle(ours)}   {peer:4} {middle(theirs)}   ratio {ratio:6.2f}{bound}", flush=True)


def connect(home: Path) -> Session:
    return Session(MasterFinder(str(home / "master.json")), OwnerToken((home / "token").read_text().strip()))


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 300) * 1_000_000
    with tempfile.TemporaryDirectory() as folder, master(Path(folder)) as (session, log):
        fill(log, size)
        middle = datetime.fromtimestamp(BEGIN + size // 90 // PER_SECOND // 2 // 60 * 60, timezone.utc)
        minute = middle.strftime("%Y-%m-%dT%H:%M")
        bounds = {"timestampAfter": f"{minute}:00Z", "timestampBefore": f"{minute}:03Z"}
        last = {"limit": 10, "orderBy": "ORDER_BY_DESC"}
        once, choice = "out of memory", "out of (mem|disk)"
        bench = Bench(Path(folder), session, log)
        every = [
            Asked("a text that is there once", {"searchText": once}, ["grep", "-F", once], LIMIT),
            Asked("the same, newest first", {"searchText": once, **last}, ["grep", "-F", once], LIMIT),
            Asked("a text that is not there", {"searchText": "segment"}, ["grep", "-F", "segment"], LIMIT),
            Asked("the errors", {"levels": ["LOG_LEVEL_ERROR"]}, ["grep", "-F", "\tERROR\t"], LIMIT),
            Asked("an expression", {"searchText": choice, "enableRegex": True}, ["grep", "-E", choice], LIMIT),
            Asked("three seconds of it", bounds, ["grep", f"^{minute}:0[012]"], LIMIT),
            Asked("the first 10", {"limit": 10}, ["head", "-n", "10"]),
            Asked("the last 10", last, ["tail", "-n", "10"]),
            Asked("the last 10,000", {**last, "limit": 10_000}, ["tail", "-n", "10000"]),
        ]
        print(f"{log.stat().st_size / 1e6:.0f} MB of log; lines found in brackets")
        spent, count = bench.ours(bounds)
        print(
            f"three seconds of it, for the first time ({count}): {spent.clock * 1000:.0f} ms (CPU {spent.cpu * 1000:.0f})"
        )
        for asked in every:
            bench.compare(asked)
        for asked in (every[2], every[4], every[5]._replace(what="lines of a time")):
            print(f"while somebody looks for {asked.what}:")
            bench.others(asked)


if __name__ == "__main__":
    main()
