"""What it takes to start: ``det --help`` and ``import dethpc.core``, beside an empty Python.

Each starts a process of its own, in turns; told is processor time, with the children of the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.frame import Row, alternate, cpu_of_children, median, ratio, run, timed

WHAT = {
    "an empty Python": ["-c", "pass"],
    "import dethpc.core": ["-c", "import dethpc.core"],
    "det --help": ["-m", "dethpc.cli", "--help"],
}
LIMITS = {"import dethpc.core": 35.0, "det --help": 70.0}  # ms; the import without the start of Python


def rows(options: argparse.Namespace) -> Iterator[Row]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(words: list[str]) -> float:
        """Milliseconds of processor time."""
        command = [sys.executable, *words]
        return (
            1e3 * timed(lambda: subprocess.run(command, check=True, capture_output=True, env=env), cpu_of_children).cpu
        )

    ways = {name: lambda words=words: start(words) for name, words in WHAT.items()}  # the first round writes bytecode
    spent = alternate(ways, 7 if options.quick else 25)
    empty = spent["an empty Python"]
    peers = {"an empty Python": median(empty)}
    added = [whole - start for whole, start in zip(spent["import dethpc.core"], empty)]
    yield Row("import dethpc.core adds", "ms", median(added), peers, LIMITS["import dethpc.core"])
    help = spent["det --help"]
    yield Row("det --help", "ms", median(help), peers, LIMITS["det --help"], ratio(help, empty))


if __name__ == "__main__":
    run(__doc__, rows)
