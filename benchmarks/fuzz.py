"""Feed altered bytes to everything that takes in what others wrote: python -m benchmarks.fuzz --minutes 60 [TARGET ...].

The targets take turns. Prints how many inputs each has had and the most memory that this process took; ends at the first input that
does harm, which hypothesis has made as short as it can.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz.targets import TARGETS, altered

_A_TURN = 500


def turn(name: str, number: int) -> None:
    target, seeds = TARGETS[name]

    @seed(number)
    @settings(max_examples=_A_TURN, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=altered(seeds))
    def take(data: bytes) -> None:
        inputs[name] += 1
        with tempfile.TemporaryDirectory() as folder:
            target(data, Path(folder))

    take()


def peak() -> int:
    """MiB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) >> 10


inputs: Counter[str] = Counter()

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=60)
    asked = parser.parse_args()
    began, turns = time.monotonic(), 0
    print(f"{peak()} MiB before the first input", flush=True)
    while time.monotonic() - began < asked.minutes * 60:
        for name in asked.targets:
            turn(name, secrets.randbits(64))
        turns += 1
        if turns % 10 == 1:
            print(f"{(time.monotonic() - began) / 60:.1f} min: {dict(inputs)}, {peak()} MiB at most", flush=True)
    print(f"{sum(inputs.values())} inputs in {(time.monotonic() - began) / 60:.1f} min, {peak()} MiB at most, no harm")
