"""How long a person waits: ``det`` commands from end to end against a running master, and requests on a kept connection.

Medians by the clock, with the mean processor time of the command and of the master, beside an empty Python. Where a machine is
busy, only processor times can be compared with the limits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from benchmarks.frame import Row, alternate, cpu_of_children, median, ratio, run
from benchmarks.setting import Local, local

LIMIT = 150  # ms, of a command
KEPT_LIMIT = 5  # ms, of a request
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
    "experiment kill 1",
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


def spent(master: Local, act: Callable[[], object]) -> Spent:
    busy, ran, begin = master.cpu(), cpu_of_children(), time.perf_counter()
    act()
    return Spent(time.perf_counter() - begin, cpu_of_children() - ran, master.cpu() - busy)


def note(found: list[Spent]) -> str:
    _, command, master = (1e3 * statistics.mean(part) for part in zip(*found))
    return f"processor time: {command:.0f} ms, the master's {master:.1f} ms"


def clock(found: list[Spent]) -> list[float]:
    """Milliseconds."""
    return [1e3 * one.clock for one in found]


def rows(options: argparse.Namespace) -> Iterator[Row]:
    with local() as master:
        (master.home / "config.yaml").write_text(CONFIG)
        (master.home / "context").mkdir()
        (master.home / "context" / "train.py").write_text(SCRIPT)
        master.det("experiment", "create", "config.yaml", "context")
        master.det("experiment", "wait", "1")
        acts: dict[str, Callable[[], object]] = {name: partial(master.det, *name.split()) for name in COMMANDS}
        acts["an empty Python"] = lambda: master.run("-c", "pass")
        ways = {name: partial(spent, master, act) for name, act in acts.items()}
        found = alternate(ways, 3 if options.quick else 15)
        empty = clock(found.pop("an empty Python"))
        for name, times in found.items():
            peers, ours = {"an empty Python": median(empty)}, clock(times)
            yield Row(f"det {name}", "ms", median(ours), peers, LIMIT, ratio(ours, empty), note=note(times))
        session = master.session()
        for path in ("/api/v1/me", "/api/v1/trials/1", "/api/v1/experiments?limit=10"):
            session.get(path)
            kept = [spent(master, lambda: session.get(path)) for _ in range(50 if options.quick else 200)]  # noqa: B023
            yield Row(f"GET {path} on a kept connection", "ms", median(clock(kept)), limit=KEPT_LIMIT, note=note(kept))
        session.close()


if __name__ == "__main__":
    run(__doc__, rows)
