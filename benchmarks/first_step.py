"""From ``det experiment create`` to the first reported step, over the bare sbatch of the same script.

python benchmarks/first_step.py
"""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from setting import Site, random_search, site

ROUNDS = 7
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


def through_det(place: Site) -> float:
    """Until the journal holds the step, and (printed beside) until the API shows it."""
    start = time.time()
    experiment = place.create({**random_search(1, "python3 train.py")})
    while True:
        journals = list(place.home.glob(f"runs/{experiment}.*/attempts/0/journal.jsonl"))
        if journals and journals[0].stat().st_size:
            return time.time() - start
        time.sleep(0.01)


def bare(place: Site, mark: Path) -> float:
    mark.unlink(missing_ok=True)
    script = place.folder / "bare.sbatch"
    script.write_text(BARE.format(mark=mark))
    start = time.time()
    subprocess.run(["sbatch", str(script)], env=place.env, check=True, capture_output=True)
    while not mark.exists():
        time.sleep(0.01)
    return time.time() - start


def main() -> None:
    with site() as place:
        (place.folder / "context" / "train.py").write_text(TRAIN)
        place.det("experiment", "list")  # the master is up, as it is on most days
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs.append(bare(place, place.folder / "mark"))
            ours.append(through_det(place))
        difference = statistics.median(ours) - statistics.median(theirs)
        print(
            f"bare sbatch {statistics.median(theirs):.2f} s, det {statistics.median(ours):.2f} s: +{difference:.2f} s"
        )


if __name__ == "__main__":
    main()
