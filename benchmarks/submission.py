"""Submissions per second: the master, a loop of raw sbatch over the same scripts, and submitit, in one run.

The partition is down, so that jobs only queue. Rounds alternate, because the machine is shared; medians are compared.

    python benchmarks/submission.py
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from setting import Site, random_search, site

JOBS, ROUNDS = 60, 5


def master(place: Site) -> float:
    experiment = place.create(random_search(JOBS, "true"))
    session = place.session()
    markers: list[Path] = []  # written just before each sbatch; looking at them costs Slurm nothing
    while len(markers) < JOBS:
        time.sleep(0.2)
        markers = list(place.home.glob(f"runs/{experiment}.*/submitting"))
    rows = [path.stat().st_mtime for path in markers]
    session.post(f"/api/v1/experiments/{experiment}/kill")
    while place.run("squeue", "--me", "--noheader").strip():
        time.sleep(0.2)
    return (len(rows) - 1) / (max(rows) - min(rows))


def raw(place: Site) -> float:
    scripts = sorted(place.home.glob("runs/*/job.sbatch"))[:JOBS]
    start = time.monotonic()
    for script in scripts:
        place.run("sbatch", "--parsable", str(script))
    elapsed = time.monotonic() - start
    place.run("scancel", "--me")
    return len(scripts) / elapsed


def by_submitit(place: Site) -> float:
    """A few only: it is slow enough for the clock."""
    code = (
        "import submitit, time, sys\n"
        "ex = submitit.SlurmExecutor(folder='submitit')\n"
        "start = time.monotonic()\n"
        "for _ in range(10): ex.submit(print, 1)\n"
        "print(10 / (time.monotonic() - start))\n"
    )
    import sys

    rate = float(place.run(sys.executable, "-c", code).split()[-1])
    place.run("scancel", "--me")
    return rate


def main() -> None:
    with site() as place:
        place.run("scontrol", "update", "partitionname=main", "state=down")
        rates: dict[str, list[float]] = {"master": [], "raw sbatch": [], "submitit": []}
        for _ in range(ROUNDS):
            rates["master"].append(master(place))
            rates["raw sbatch"].append(raw(place))
            rates["submitit"].append(by_submitit(place))
        base = statistics.median(rates["raw sbatch"])
        for name, values in rates.items():
            middle = statistics.median(values)
            print(f"{name:12} {middle:7.1f} jobs/s   {middle / base:5.2f} of raw sbatch")


if __name__ == "__main__":
    main()
