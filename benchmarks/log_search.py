"""Looking for lines in a log, beside grep, tail and head on the same file; and how long others wait meanwhile.

A master on this machine is asked over HTTP, in turns with the tool. The file (300 MB; 40 MB in a quick run) is in the page cache
for both. Figures are the processor time of the master, and of the tool: both compute and wait for nothing, and by the clock, which
stands beside them, each has what other work on the machine takes. In brackets: how many lines are found. RE2 looks through blocks
of 1 MB without the interpreter's lock; only lines that may be wanted are parsed. The first question for a time learns which times
are in each 4 MB and keeps that in memory. Of 10,000 lines that are shown, nearly all of the time goes into writing their JSON.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.frame import Figure, Row, Spent, alternate, cpu_of_children, median, ratio, run, timed
from benchmarks.setting import Local, local
from dethpc.client import Session
from dethpc.rundir.layout import RunDir

LIMIT = 10.0
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
def master() -> Iterator[tuple[Local, Path]]:
    """A master with one trial that has ended, and the file of its log."""
    with local() as made:
        (made.home / "config.yaml").write_text(CONFIG)
        (made.home / "context").mkdir()
        made.det("experiment", "create", "config.yaml", "context", "--follow")
        yield made, RunDir(next((made.home / "runs").iterdir())).attempt(0).log(0)


def fill(log: Path, size: int) -> None:
    n = 0
    with open(log, "w") as file:
        while file.tell() < size:
            for _ in range(10_000):
                second = datetime.fromtimestamp(BEGIN + n // PER_SECOND, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
                level = "ERROR" if n % 300_000 == 150_000 else "INFO"
                words = f"epoch {n // 1000} batch {n % 1000} loss={n * 7919 % 10007 / 10007:.5f} lr=0.001"
                if n == 250_000:
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


class Asked(NamedTuple):
    what: str
    params: dict[str, Any]
    tool: list[str]
    limit: float | None = None


class Bench:
    def __init__(self, at: Local, log: Path) -> None:
        self._at, self._log, self._session = at, log, at.session()

    def ours(self, params: dict[str, Any]) -> tuple[Spent, int]:
        """And how many lines came."""
        lines: list[str] = []
        spent = timed(lambda: lines.extend(self._session.stream("/api/v1/trials/1/logs", params)), self._at.cpu)
        return spent, len(lines)

    def theirs(self, tool: list[str]) -> tuple[Spent, int]:
        command, env = [*tool, str(self._log)], {**os.environ, "LC_ALL": "C"}
        return timed(lambda: subprocess.run(command, stdout=subprocess.PIPE, env=env), cpu_of_children), 0

    def compare(self, asked: Asked, rounds: int) -> Row:
        found = alternate(
            {"ours": lambda: self.ours(asked.params), "tool": lambda: self.theirs(asked.tool)}, rounds, warm=0
        )
        ours, theirs = ([1e3 * spent.cpu for spent, _ in found[name]] for name in ("ours", "tool"))
        clock = {name: 1e3 * statistics.median(spent.clock for spent, _ in found[name]) for name in found}
        note = f"by the clock: {clock['ours']:.0f} ms, {asked.tool[0]} {clock['tool']:.1f} ms"
        name, peers = f"{asked.what} ({found['ours'][0][1]})", {asked.tool[0]: median(theirs)}
        return Row(
            name, "ms of processor time", median(ours), peers, asked.limit, ratio(ours, theirs), of="ratio", note=note
        )

    def others(self, asked: Asked, rounds: int) -> Row:
        """How long another client waits while somebody asks this, and for as long while nobody does."""
        waits = {}
        for name in ("quiet", "meanwhile"):
            with Others(self._at.session()) as others:
                if name == "quiet":
                    time.sleep(1)
                for _ in range(rounds if name == "meanwhile" else 0):
                    self.ours(asked.params)
            waits[name] = [1e3 * seconds for seconds in others.waits]
        peers = {"while nobody searches": Figure(max(waits["quiet"]))}
        note = f"medians: {statistics.median(waits['meanwhile']):.1f} and {statistics.median(waits['quiet']):.1f} ms"
        name = f"another client waits at most, while somebody looks for {asked.what}"
        return Row(name, "ms", Figure(max(waits["meanwhile"])), peers, LIMIT_WAIT, note=note)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    size, rounds = (40_000_000, 3) if options.quick else (300_000_000, 9)
    with master() as (at, log):
        fill(log, size)
        middle = datetime.fromtimestamp(BEGIN + size // 90 // PER_SECOND // 2 // 60 * 60, timezone.utc)
        minute = middle.strftime("%Y-%m-%dT%H:%M")
        bounds = {"timestampAfter": f"{minute}:00Z", "timestampBefore": f"{minute}:03Z"}
        last = {"limit": 10, "orderBy": "ORDER_BY_DESC"}
        once, choice = "out of memory", "out of (mem|disk)"
        bench = Bench(at, log)
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
        for asked in every:
            yield bench.compare(asked, rounds)
        for asked in (every[2], every[4], every[5]._replace(what="lines of a time")):
            yield bench.others(asked, 3)


if __name__ == "__main__":
    run(__doc__, rows)
