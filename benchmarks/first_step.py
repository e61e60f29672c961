"""From ``det experiment create`` to the first reported step, over the bare sbatch of the same script.

``det`` ends when the journal holds the step; the bare script writes a file instead of reporting. slurmctld looks for jobs to start
up to a second after a submission, in a rhythm of its own: each round begins at a time drawn anew, and what a job waited for Slurm
is told apart, by slurmctld's own log. What is left is ours: from the command to Slurm's queue, and from the start of the job to the
step.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.frame import Row, alternate, median, run
from benchmarks.setting import Site, random_search, site

TRAIN = """\
import determined as det
with det.core.init() as core:
    core.train.report_training_metrics(steps_completed=1, metrics={"loss": 1.0})
"""
BARE = """\
#!/bin/bash
#SBATCH --output=/dev/null
#SBATCH --gres=gpu:1
srun python3 -c 'open("{mark}", "w")'
"""


class Start(NamedTuple):
    """Seconds: all of it; until the job is queued; from its start to the step. The rest is Slurm's."""

    whole: float
    queued: float
    started: float


def slurms_word(place: Site, job_id: str) -> list[float]:
    """When slurmctld took the job, and when it started it (time.time)."""
    times: list[float] = []
    for line in (place.cluster.folder / "log" / "slurmctld.log").read_text().splitlines():
        said = re.match(rf"\[(.{{19}})(\.\d+)\] .*\bJobId={job_id}\b", line)
        if said:
            times.append(time.mktime(time.strptime(said[1], "%Y-%m-%dT%H:%M:%S")) + float(said[2]))
    return times[:2]


def measured(place: Site, start: Callable[[], tuple[str, Path]], draw: random.Random) -> Start:
    """``start`` submits, and returns the job and the file that it writes."""
    time.sleep(draw.random())
    begin = time.time()
    job_id, written = start()
    while not (written.exists() and written.stat().st_size):
        time.sleep(0.005)
    end = written.stat().st_mtime
    queued, started = slurms_word(place, job_id)
    while place.run("squeue", "--me", "--noheader").strip():
        time.sleep(0.05)
    return Start(end - begin, queued - begin, end - started)


def through_det(place: Site) -> tuple[str, Path]:
    experiment = place.create({**random_search(1, "python3 train.py")})
    while not (claims := list(place.home.glob(f"runs/{experiment}.*/claim"))):
        time.sleep(0.005)
    job_id = re.findall(r'"job_id": "(\d+)"', claims[0].read_text())[0]
    return job_id, claims[0].parent / "attempts" / "0" / "journal.jsonl"


def bare(place: Site, mark: Path) -> tuple[str, Path]:
    mark.unlink(missing_ok=True)
    script = place.folder / "bare.sbatch"
    script.write_text(BARE.format(mark=mark).replace('"w")', '"w").write("1")'))
    done = subprocess.run(
        ["sbatch", "--parsable", str(script)], env=place.env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip(), mark


def rows(options: argparse.Namespace) -> Iterator[Row]:
    draw = random.Random(0)
    with site() as place:
        (place.folder / "context" / "train.py").write_text(TRAIN)
        place.det("experiment", "list")  # the master is up, as it is on most days
        ways = {
            "ours": lambda: measured(place, lambda: through_det(place), draw),
            "bare": lambda: measured(place, lambda: bare(place, place.folder / "mark"), draw),
        }
        found = alternate(ways, 3 if options.quick else 15)
        ours, theirs = found["ours"], found["bare"]
        peers = {"bare sbatch": median([one.whole for one in theirs])}
        yield Row("create to the first step", "s", median([one.whole for one in ours]), peers)
        parts = {"until it is queued": "queued", "from the start of the job": "started"}
        for name, part in parts.items():
            peers = {"bare sbatch": median([getattr(one, part) for one in theirs])}
            yield Row(f"of it {name}", "s", median([getattr(one, part) for one in ours]), peers)
        added = [a.queued + a.started - b.queued - b.started for a, b in zip(ours, theirs)]
        yield Row("over bare sbatch, without the time in Slurm's queue", "s", median(added), limit=0.5)


if __name__ == "__main__":
    run(__doc__, rows)
