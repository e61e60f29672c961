"""What it takes to start: ``det --help`` and ``import dethpc.core``, over an empty Python.

python benchmarks/start_up.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

ROUNDS = 15
WHAT = {
    "empty python": ["-c", "pass"],
    "import dethpc.core": ["-c", "import dethpc.core"],
    "det --help": ["-m", "dethpc.cli", "--help"],
}


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in WHAT}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for round in range(-1, ROUNDS):  # the first one writes the bytecode and does not count
        for name, words in WHAT.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, capture_output=True, env=env)
            if round >= 0:
                times[name].append(time.perf_counter() - start)
    base = statistics.median(times["empty python"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:20} {middle * 1000:6.0f} ms   (+{(middle - base) * 1000:.0f} ms)")


if __name__ == "__main__":
    main()
