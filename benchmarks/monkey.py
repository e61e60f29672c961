"""Searches on a private Slurm under a seeded monkey, round after round: what it broke, and whether anything was lost or doubled.

python -m benchmarks.monkey [--minutes 60] [--seed S] [--trials 40] [--notes FOLDER]

Each round is a fresh installation on a fresh cluster. FOLDER gets what the monkey did, a file for each round, and the home of a
round that is not clean. A round that has begun when the time is over goes on to its end. Only root can let disks fill up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.monkey.monkey import Frozen
from tests.monkey.round import SHAPE, Round, play
from tests.monkey.verdict import Verdict, total
from tests.monkey.world import world


def main() -> None:
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # clean up also when this runs in the background
        signal.signal(number, signal.default_int_handler)
    options.notes.mkdir(parents=True, exist_ok=True)
    began, rounds = time.monotonic(), list[Round]()
    while not rounds or time.monotonic() < began + options.minutes * 60:
        start = time.monotonic()
        rounds.append(one(f"{options.seed}:{len(rounds) + 1}", options.trials, options.notes))
        verdict, faults = rounds[-1]
        print(
            f"round {len(rounds)}: {sum(faults.values())} faults, {verdict.trials} trials, {verdict.runs} runs, "
            f"{verdict.reports} reports, lost {len(verdict.lost)}, doubled {len(verdict.doubled)}, "
            f"wrong {len(verdict.wrong)}, left over {len(verdict.left_over)}; {time.monotonic() - start:.0f} s",
            flush=True,
        )
        if not verdict.clean:
            print(verdict, flush=True)
    table(rounds, (time.monotonic() - began) / 60)
    sys.exit(any(not found.verdict.clean for found in rounds))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", default=f"{int.from_bytes(os.urandom(4), 'big')}")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--notes", type=Path, default=Path(tempfile.gettempdir()) / "monkey")
    return parser.parse_args()


def one(seed: str, trials: int, notes: Path) -> Round:
    with tempfile.TemporaryDirectory(prefix="monkey-") as folder, world(Path(folder), **SHAPE) as made:
        file = notes / f"{seed.replace(':', '-')}.jsonl"
        file.unlink(missing_ok=True)
        try:
            found = play(made, seed, file, trials=trials, most=81, faults=None)
        except Frozen as error:
            found = Round(Verdict(wrong=[str(error)]), {})
        if not found.verdict.clean:
            shutil.copytree(made.user.home, notes / f"{seed.replace(':', '-')}-home", symlinks=True, dirs_exist_ok=True)
            shutil.copytree(made.cluster.folder / "log", notes / f"{seed.replace(':', '-')}-slurm", dirs_exist_ok=True)
        return found


def table(rounds: list[Round], minutes: float) -> None:
    kinds: Counter[str] = Counter()
    for found in rounds:
        kinds.update(found.faults)
    print("\n| fault | injected |\n|---|---|")
    for kind, count in sorted(kinds.items()):
        print(f"| {kind} | {count} |")
    print(f"| all {len(kinds)} kinds | {kinds.total()} |\n\n| | |\n|---|---|")
    figures = total(found.verdict for found in rounds)
    print(f"| minutes | {minutes:.0f} |\n| rounds | {len(rounds)} |")
    for name, count in figures.items():
        print(f"| {name.replace('_', ' ')} | {count} |")


if __name__ == "__main__":
    main()
