"""Faults in virtual time: production master, ledger, reconciler and run directories, with everything that goes wrong.

python -m benchmarks.faults [--events N] [--seed S] [--at-once N] [--minutes N]   figures by kind; a failure prints its seed
python -m benchmarks.faults replay SEED [--events N]                the story of one seed

One seed is one story of about 500 events (what trainings do and report, commits of the master, faults, wishes of users); after
its last fault everything has to end well. ``tests/simulator/world`` says what is judged.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulator.world import Story, Violation

EVENTS = 500
"""In one story, before its faults stop."""


class Told(NamedTuple):
    seed: int
    events: int
    reports: int
    checks: int
    seconds: float  # of CPU
    counts: Counter[str]
    trials: Counter[str]  # how they ended
    failure: str


def tell(seed: int, events: int = EVENTS) -> Told:
    began, failure, told = time.process_time(), "", Story(seed, events=events)
    try:
        told.run()
    except Violation as violation:
        failure = str(violation)
    except Exception as error:
        failure = f"seed {seed}: {type(error).__name__}: {error}"
    took = time.process_time() - began
    return Told(seed, told.events, told.judge.reports, told.judge.checks, took, told.counts, told.judge.ends, failure)


def stories(seed: int, events: int, at_once: int, minutes: float) -> Iterator[Told]:
    """Story after story, until they have had so many events or so much time."""
    until = time.monotonic() + 60 * minutes
    with ProcessPoolExecutor(at_once) as pool:
        waiting = {pool.submit(tell, seed + n) for n in range(2 * at_once)}
        following = seed + len(waiting)
        while waiting:
            done = next(as_completed(waiting))
            waiting.remove(done)
            told = done.result()
            events -= told.events
            if events > 0 and time.monotonic() < until:
                waiting.add(pool.submit(tell, following))
                following += 1
            yield told


def run(seed: int, events: int, at_once: int, minutes: float) -> int:
    counts, trials = Counter[str](), Counter[str]()
    had = reports = checks = told_stories = 0
    seconds, failures, began = 0.0, list[str](), time.perf_counter()
    columns = (TextColumn("{task.completed:,} of {task.total:,} events"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), refresh_per_second=1) as progress:
        bar = progress.add_task("", total=events)
        for told in stories(seed, events, at_once, minutes):
            counts += told.counts
            trials += told.trials
            had, reports, checks = had + told.events, reports + told.reports, checks + told.checks
            seconds, told_stories = seconds + told.seconds, told_stories + 1
            if told.failure:
                failures.append(told.failure)
                progress.console.print(told.failure, markup=False)
            progress.update(bar, completed=had, description=f"{told_stories} stories, {len(failures)} failures")
    print("| what | how many |\n|---|---|")
    for name, number in [
        ("events", had),
        ("stories (seeds)", told_stories),
        ("reports", reports),
        *((f"trials that ended {state}", number) for state, number in sorted(trials.items())),
        ("looks at the whole of memory, rows and change logs", checks),
        *((kind, number) for kind, number in sorted(counts.items())),
        ("failures", len(failures)),
    ]:
        print(f"| {name} | {number:,} |")
    took, speed = time.perf_counter() - began, had / max(seconds, 0.001)
    print(
        f"\nseeds {seed} to {seed + told_stories - 1}; {took:,.0f} s, {seconds:,.0f} s of CPU, {speed:,.0f} events/s of CPU"
    )
    for failure in failures:
        failed = failure.split(":")[0].removeprefix("seed ")
        print(f"{failure}\n    python -m benchmarks.faults replay {failed}")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replay", nargs="*", metavar="replay SEED")
    parser.add_argument("--events", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="begin no story after so long")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if not asked.replay:
        return run(asked.seed, asked.events or 20_000, asked.at_once, asked.minutes)
    if asked.replay[0] != "replay" or len(asked.replay) != 2:
        parser.error("say: replay SEED")
    told = Story(int(asked.replay[1]), events=asked.events or EVENTS, tell=True)
    try:
        told.run()
    except Violation as violation:
        print(violation)
        return 1
    finally:
        print(f"trace {told.trace}")
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # one seed is one story, whatever the process
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
