"""The gap between two trials that share one slot: from the last line of the one's code to the first line of the next one's, on
this machine and on a private Slurm of one GPU, where all wait in the queue at once. Beside it a chain of bare sbatch jobs without
dethpc, one GPU, all in Slurm's queue.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from benchmarks.frame import Row, median, run
from benchmarks.setting import Local, Site, local, random_search, site

TRAIN = """\
import time
began = time.time()
import determined as det
with det.core.init() as core:
    core.train.report_training_metrics(steps_completed=1, metrics={{"loss": 1.0}})
    core.train.report_validation_metrics(steps_completed=1, metrics={{"loss": 1.0}})
with open({times!r}, "a") as file:
    print(began, time.time(), file=file)
"""
BARE = """\
#!/bin/bash
#SBATCH --output=/dev/null
#SBATCH --gres=gpu:1
srun python3 -c 'import time; began = time.time(); print(began, time.time(), file=open("{times}", "a"))'
"""


def gaps(times: Path, trials: int) -> list[float]:
    """Once all have written when they began and ended."""
    while not times.exists() or len(lines := times.read_text().splitlines()) < trials:
        time.sleep(0.05)
    spans = sorted(tuple(map(float, line.split())) for line in lines)
    return [after[0] - before[1] for before, after in zip(spans, spans[1:])]


def through_det(place: Local | Site, folder: Path, trials: int) -> list[float]:
    times = folder / "times"
    times.unlink(missing_ok=True)
    (folder / "context").mkdir(exist_ok=True)
    (folder / "context" / "train.py").write_text(TRAIN.format(times=str(times)))
    config = {**random_search(trials, "python3 train.py"), "resources": {"slots_per_trial": 1}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    place.det("experiment", "create", "config.yaml", "context")
    return gaps(times, trials)


def bare(place: Site, trials: int) -> list[float]:
    times, script = place.folder / "bare", place.folder / "bare.sbatch"
    times.unlink(missing_ok=True)
    script.write_text(BARE.format(times=times))
    for _ in range(trials):
        subprocess.run(["sbatch", str(script)], env=place.env, check=True, capture_output=True)
    return gaps(times, trials)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    trials, rounds = (5, 1) if options.quick else (8, 3)
    os.environ["DETHPC_LOCAL_SLOTS"] = "1"
    with local() as here:
        found = [gap for _ in range(rounds) for gap in through_det(here, here.home, trials)]
        yield Row("gap on this machine", "s", median(found), limit=0.15)
    with site(nodes=1, gpus_per_node=1) as place:
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(rounds):
            theirs += bare(place, trials)
            ours += through_det(place, place.folder, trials)
        yield Row("gap on Slurm", "s", median(ours), {"bare sbatch": median(theirs)})
        added = [a - b for a, b in zip(sorted(ours), sorted(theirs))]
        yield Row("gap on Slurm, over bare sbatch", "s", median(added), limit=0.5)


if __name__ == "__main__":
    run(__doc__, rows)
