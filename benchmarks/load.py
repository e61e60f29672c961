"""Everything at once: 500 trials report while 50 clients list, describe, follow logs and wait for signals.

A real master in a process of its own; only its scheduler is not real, and nothing trains. The trials have the reporter of the Core
API each, ten reports of four values a second, in two processes; a third process is the clients, which pause a second between two
looks. Those who follow write a line a second to the log that they follow, and say when it comes back. For five minutes, on as many
cores as there are: reporters and clients take their part of them. What a request takes is by the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

from benchmarks.frame import Figure, Row, median, run
from benchmarks.metrics_in import PACED, RATE, VALUES
from benchmarks.reporting_trials import Clients, master

CLIENTS = 50


def rows(options: argparse.Namespace) -> Iterator[Row]:
    seconds = 12.0 if options.quick else options.seconds
    with master(options.trials) as ours:
        clients = Clients(ours)
        job = {"url": ours.url, "rate": RATE, "count": VALUES, "seconds": seconds + 6}
        reporting = [clients.start("paced", runs=half, **job) for half in (ours.runs[0::2], ours.runs[1::2])]
        time.sleep(3)
        looking = clients.start("look", url=ours.url, runs=ours.runs, seconds=seconds, clients=CLIENTS)
        busy, began, memory = ours.cpu(), time.monotonic(), [ours.resident()]
        while time.monotonic() < began + seconds:
            time.sleep(2)
            memory.append(ours.resident())
        cores = (ours.cpu() - busy) / (time.monotonic() - began)
        seen, said = clients.result(looking), [clients.result(each) for each in reporting]
        lost = sum(each["reports"] for each in said) - sum(ours.counted())
    for name, spent in seen["asked"].items():
        limit = 300 if name in ("experiments", "trials") else None
        told = ", ".join(f"p{part} {percentile(spent, part / 100):.0f} ms" for part in (50, 95))
        told += f", longest {1e3 * max(spent):.0f} ms, {len(spent):,} times"
        yield Row(f"{name}, 99th percentile", "ms", median([1e3 * one for one in spent], p99), limit=limit, note=told)
    rate = sum(each["reports"] / each["seconds"] for each in said)
    failed = len(seen["failed"])
    requests = sum(map(len, seen["asked"].values())) + failed
    yield Row("requests that failed", "", Figure(failed), limit=0, note=f"of {requests:,} {seen['failed'][:2] or ''}")
    yield Row("reports that were lost", "", Figure(lost), limit=0, note=f"of {rate:,.0f} a second")
    quarters = [memory[n * (len(memory) - 1) // 4] for n in range(5)]
    note = " → ".join(f"{each:.0f}" for each in quarters) + " MB, every quarter of the time"
    yield Row("the master's memory at its most", "MB", Figure(max(memory)), note=note)
    yield Row("the master", "cores", Figure(cores))


def percentile(spent: Sequence[float], part: float) -> float:
    """Milliseconds."""
    return 1e3 * sorted(spent)[int(part * len(spent))]


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--trials", type=int, default=PACED, help=f"that report; {PACED} by default")


if __name__ == "__main__":
    run(__doc__, rows, arguments)
