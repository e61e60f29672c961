"""What a report and a look whether to stop cost the training loop, beside a JSON line that is flushed.

As on the cluster: into an attempt's journal, with a master that takes the reports, and event files for TensorBoard. A report is in
the journal when the call returns, and a thread flushes it to disk within a second. Time between two reports is some work of 5 ms,
as in a training; in a tight loop, what is waked and cached already costs nothing. Figures are the processor time of the loop's own
thread; the clock, which stands beside it, also has what other work on the machine takes. In a tight loop a report may take what it
took when it did less: 12 us of processor time, 10 us by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from benchmarks.frame import Row, alternate, median, ratio, run, timed

MASTER = """
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Master(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        lines = self.rfile.read(int(self.headers["Content-Length"])).splitlines()
        self.answer({"appliedSeq": int(lines[-1].split()[0]) if lines else 0, "stop": None})
    def do_GET(self):
        threading.Event().wait(60)
        self.answer({"preempt": False})
    def answer(self, reply):
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Master)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"""  # says that all has been applied


def attempt(folder: Path, url: str | None) -> None:
    """Makes this process the only worker of an attempt whose directory is in ``folder``."""
    place = folder / "runs" / "1.1.1" / "attempts" / "0"
    place.mkdir(parents=True)
    (folder / "master.json").write_text(json.dumps({"url": url}))
    searcher = {"name": "single", "metric": "loss"}
    info: dict[str, Any] = {
        "master_url": url,
        "master_file": str(folder / "master.json"),
        "cluster_id": "c1",
        "agent_id": "node1",
        "slot_ids": [0],
        "task_id": "1.1",
        "allocation_id": "1.1.1.0",
        "session_token": "token",
        "task_type": "TRIAL",
        "latest_checkpoint": None,
        "trial": {
            "trial_id": 1,
            "experiment_id": 1,
            "trial_seed": 1,
            "hparams": {},
            "config": {"searcher": searcher},
            "steps_completed": 0,
            "trial_run_id": 1,
        },
        "rendezvous": {"container_addrs": ["127.0.0.1"], "container_rank": 0, "container_slot_counts": [1]},
        "resources": {"gpu_uuids": []},
        "ports": {"core": []},
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(folder / "checkpoints")},
    }
    (place / "info-0.json").write_text(json.dumps(info))
    os.environ["DETHPC_INFO"] = str(place / "info-0.json")
    os.environ["TMPDIR"] = str(folder)


@contextmanager
def context() -> Iterator[Any]:
    """The Core API's, in an attempt with a master that says that all has been applied."""
    master = subprocess.Popen([sys.executable, "-c", MASTER], stdout=subprocess.PIPE, text=True)
    assert master.stdout is not None
    try:
        with tempfile.TemporaryDirectory() as folder:
            attempt(Path(folder), f"http://127.0.0.1:{int(master.stdout.readline())}")
            from dethpc import core

            with core.init() as made:
                yield made
    finally:
        master.kill()
        master.wait()


LIMITS = {1000: 1000.0, 10: None, 4: None}
TIGHT, TIGHT_CLOCK, ASKED = 12.0, 10.0, 0.4
"""Microseconds: of a report by its metrics, of one in a tight loop (processor time, the clock), of a look whether to stop."""


def rows(options: argparse.Namespace) -> Iterator[Row]:
    rounds = 60 if options.quick else 400
    with context() as made, tempfile.TemporaryFile("w") as file:
        for count, limit in LIMITS.items():
            yield after_work(made, file, count, limit, rounds)
        yield from tight(made, file, 20 if options.quick else 100)
        yield looks(made, 20 if options.quick else 100)


def after_work(made: Any, file: TextIO, count: int, limit: float | None, rounds: int) -> Row:
    """Each report follows work of 5 ms."""
    generator, steps = random.Random(1), iter(range(10**9))

    def once(act: Callable[[int, dict[str, float]], None]) -> tuple[float, float]:
        """Microseconds of processor time and by the clock."""
        work()
        metrics = {f"layer.{n}.gradient_norm": generator.random() for n in range(count)}
        spent = timed(lambda: act(next(steps), metrics), time.thread_time)
        return 1e6 * spent.cpu, 1e6 * spent.clock

    ways = {"ours": made.train.report_training_metrics, "line": lambda step, metrics: line(file, step, metrics)}
    found = alternate({name: partial(once, act) for name, act in ways.items()}, rounds, warm=3)
    ours, theirs = ([cpu for cpu, _ in found[name]] for name in ("ours", "line"))
    note = f"by the clock {statistics.median(clock for _, clock in found['ours']):.0f} us"
    peers = {"a JSON line": median(theirs)}
    return Row(
        f"a report of {count:,} metrics, between work", "us", median(ours), peers, limit, ratio(ours, theirs), note=note
    )


def tight(made: Any, file: TextIO, rounds: int) -> Iterator[Row]:
    """Reports in a loop that does nothing else: the mean of 200, so that what the clock cannot tell apart is told."""
    metrics, steps = (
        {"loss": 0.731, "accuracy": 0.912, "rate": 1e-3, "throughput": 1234.5},
        iter(range(10**9, 2 * 10**9)),
    )

    def many(act: Callable[[int, dict[str, float]], object]) -> tuple[float, float]:
        """Microseconds of processor time, and by the clock."""
        clocks: list[float] = []

        def loop() -> None:
            for _ in range(200):
                begin = time.perf_counter()
                act(next(steps), metrics)
                clocks.append(time.perf_counter() - begin)

        spent = timed(loop, time.thread_time)
        return 1e6 * spent.cpu / 200, 1e6 * statistics.median(clocks)

    ways = {"ours": made.train.report_training_metrics, "line": lambda step, metrics: line(file, step, metrics)}
    found = alternate({name: partial(many, act) for name, act in ways.items()}, rounds)
    for which, limit, how in ((0, TIGHT, "processor time"), (1, TIGHT_CLOCK, "by the clock")):
        ours, theirs = ([each[which] for each in found[name]] for name in ("ours", "line"))
        peers = {"a JSON line": median(theirs)}
        yield Row(
            f"a report of 4 metrics, in a tight loop, {how}", "us", median(ours), peers, limit, ratio(ours, theirs)
        )


def looks(made: Any, rounds: int) -> Row:
    ask = made.preempt.should_preempt

    def many(act: Callable[[], object]) -> float:
        return 1e6 * timed(lambda: [act() for _ in range(2000)], time.thread_time).cpu / 2000

    found = alternate({"ours": lambda: many(ask), "clock": lambda: many(time.monotonic)}, rounds)
    peers = {"time.monotonic()": median(found["clock"])}
    return Row("should_preempt()", "us", median(found["ours"]), peers, ASKED, ratio(found["ours"], found["clock"]))


def line(file: TextIO, step: int, metrics: dict[str, float]) -> None:
    """What a training would do without us."""
    file.write(json.dumps({"steps_completed": step, "metrics": metrics}) + "\n")
    file.flush()


def work() -> None:
    """5 ms of processor time without the interpreter's lock for the most part, as of a framework."""
    until = time.thread_time() + 0.005
    while time.thread_time() < until:
        zlib.crc32(_DATA)


_DATA = bytes(200_000)

if __name__ == "__main__":
    run(__doc__, rows)
