"""Slurm requests per cycle of the master, by sdiag's count, with 10 and with 2,000 trials in one experiment.

python benchmarks/rpcs.py
"""

from __future__ import annotations

import time

from setting import Site, random_search, site

SECONDS = 30


def per_cycle(place: Site, trials: int) -> float:
    """One question a second while everything waits (the partition is down). Our own sdiag calls are taken off."""
    experiment = place.create(random_search(trials, "true"))
    expected, last = min(trials, 100), -1
    while last != expected:
        time.sleep(1)
        last = len(place.run("squeue", "--me", "--noheader").split("\n")) - 1
    time.sleep(2)
    own = -place.rpcs() + place.rpcs()  # what one sdiag itself adds
    before, start = place.rpcs(), time.monotonic()
    time.sleep(SECONDS)
    elapsed = time.monotonic() - start
    count = place.rpcs() - before - own
    place.det("experiment", "kill", str(experiment))
    while place.run("squeue", "--me", "--noheader").strip():
        time.sleep(0.5)
    return count / elapsed  # a cycle takes one second here


def main() -> None:
    with site() as place:
        place.run("scontrol", "update", "partitionname=main", "state=down")
        for trials in (10, 2000):
            print(f"{trials:6} trials: {per_cycle(place, trials):.2f} requests per cycle")


if __name__ == "__main__":
    main()
