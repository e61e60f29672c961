"""Slurm requests per cycle of the master, by sdiag's count, with few and with many trials in one experiment.

The partition of a private Slurm is down, so that all trials wait and the master asks most: squeue and sinfo, in cycles of a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from benchmarks.frame import Figure, Row, run
from benchmarks.setting import Site, random_search, site

LIMIT = 4.0


def per_cycle(place: Site, trials: int, seconds: int) -> float:
    """One question a second while everything waits (the partition is down). Our own sdiag calls are taken off."""
    experiment = place.create(random_search(trials, "true"))
    expected, last = min(trials, 100), -1
    while last != expected:
        time.sleep(1)
        last = len(place.run("squeue", "--me", "--array", "--noheader").split("\n")) - 1
    time.sleep(2)
    own = -place.rpcs() + place.rpcs()  # what one sdiag itself adds
    before, start = place.rpcs(), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - start
    count = place.rpcs() - before - own
    place.det("experiment", "kill", str(experiment))
    while place.run("squeue", "--me", "--noheader").strip():
        time.sleep(0.5)
    return count / elapsed  # a cycle takes one second here


def rows(options: argparse.Namespace) -> Iterator[Row]:
    seconds = 6 if options.quick else 30
    with site() as place:
        place.run("scontrol", "update", "partitionname=main", "state=down")
        few = per_cycle(place, 10, seconds)
        yield Row("requests a cycle, 10 trials", "", Figure(few), limit=LIMIT)
        many = 100 if options.quick else 2000
        found = per_cycle(place, many, seconds)
        yield Row(
            f"requests a cycle, {many:,} trials",
            "",
            Figure(found),
            {"10 trials": Figure(few)},
            LIMIT,
            Figure(found / few),
        )


if __name__ == "__main__":
    run(__doc__, rows)
