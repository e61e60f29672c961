"""Submissions to a private Slurm, beside a loop of ``sbatch`` over the same scripts that is started in the same way: by Python,
one command after the other. The partition is down, so that jobs only queue. Both end when ``squeue`` lists all jobs. A search is
counted from its first run directory on; from ``det experiment create`` it is told beside. Once its trials are alike and go as job
arrays, once an option of theirs makes them go one by one. Then the search is killed, until it is CANCELED. submitit submits ten,
one after the other.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.frame import Row, alternate, median, ratio, run
from benchmarks.setting import Site, random_search, site

LIMIT, LIMIT_OF_ARRAYS = 0.9, 3.0
ALONE = {"sbatch_args": ["--mail-type=NONE"]}  # one mail would be written for an array: its jobs go one by one


class Search(NamedTuple):
    """Seconds: all its jobs are queued, since its creation and since its first submission; it is CANCELED, since its kill."""

    created: float
    queued: float
    killed: float


def until_queued(place: Site, jobs: int) -> float:
    """When ``squeue`` lists so many."""
    while len(place.run("squeue", "--me", "--array", "--noheader", "--format=%i").split()) < jobs:
        time.sleep(0.02)
    return time.time()


def search(place: Site, jobs: int, **slurm: object) -> Search:
    begin = time.time()
    experiment = place.create({**random_search(jobs, "true"), "slurm": slurm})
    scripts: list[Path] = []  # written before each submission; looking at them costs Slurm nothing
    while len(scripts) < jobs:
        time.sleep(0.02)
        scripts = list(place.home.glob(f"runs/{experiment}.*/job.sbatch"))
    first = min(path.stat().st_mtime for path in scripts)
    queued = until_queued(place, jobs)
    session, killed = place.session(), time.time()
    session.post(f"/api/v1/experiments/{experiment}/kill")
    while session.get(f"/api/v1/experiments/{experiment}")["experiment"]["state"] not in ("CANCELED", "STATE_CANCELED"):
        time.sleep(0.02)
    return Search(queued - begin, queued - first, time.time() - killed)


def loop(place: Site, jobs: int) -> float:
    """Seconds."""
    scripts = sorted(place.home.glob("runs/*/job.sbatch"))[:jobs]
    begin = time.time()
    for script in scripts:
        place.run("sbatch", "--parsable", str(script))
    seconds = until_queued(place, jobs) - begin
    place.run("scancel", "--me")
    return seconds


def by_submitit(place: Site) -> float:
    """Jobs a second. A few only: it is slow enough for the clock."""
    code = (
        "import submitit, time, sys\n"
        "ex = submitit.SlurmExecutor(folder='submitit')\n"
        "start = time.monotonic()\n"
        "for _ in range(10): ex.submit(print, 1)\n"
        "print(10 / (time.monotonic() - start))\n"
    )
    rate = float(place.run(sys.executable, "-c", code).split()[-1])
    place.run("scancel", "--me")
    return rate


def rows(options: argparse.Namespace) -> Iterator[Row]:
    jobs, rounds = (60, 2) if options.quick else (200, 7)
    with site(window=jobs) as place:
        place.run("scontrol", "update", "partitionname=main", "state=down")
        search(place, jobs)  # its scripts are the loop's
        found: dict[str, list[Search]] = {"alone": [], "arrays": []}

        def searched(how: str, **slurm: object) -> float:
            found[how].append(search(place, jobs, **slurm))
            return found[how][-1].queued

        ways = {"alone": lambda: searched("alone", **ALONE), "arrays": lambda: searched("arrays")}
        times = alternate({**ways, "loop": lambda: loop(place, jobs)}, rounds)
        theirs = [jobs / seconds for seconds in times["loop"]]
        peers = {"loop of sbatch": median(theirs), "submitit": median([by_submitit(place)])}
        for how, words, limit in (("alone", "one by one", LIMIT), ("arrays", "as job arrays", LIMIT_OF_ARRAYS)):
            ours = [jobs / seconds for seconds in times[how]]
            searches = found[how][-rounds:]
            whole = median([one.created for one in searches])
            note = f"from det experiment create to the last one: {whole} s"
            name = f"{jobs} trials into the queue {words}"
            yield Row(name, "jobs/s", median(ours), peers, limit, ratio(ours, theirs), rule=">=", of="ratio", note=note)
            yield Row(
                f"kill of {jobs} trials in the queue {words} until CANCELED",
                "s",
                median([one.killed for one in searches]),
            )


if __name__ == "__main__":
    run(__doc__, rows)
