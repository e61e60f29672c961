"""Deliberate bugs: each has to be caught by the judge of ``benchmarks.faults``.

python -m benchmarks.mutations [--seeds N] [WORDS]   WORDS: those whose names have them
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulator.world.mutations import MUTATIONS, caught


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    asked = parser.parse_args()
    passed = 0
    for mutation in MUTATIONS:
        if asked.words and " ".join(asked.words) not in mutation.name:
            continue
        began = time.process_time()
        found = caught(mutation, range(asked.seeds))
        passed += not found
        print(
            f"{'caught' if found else 'PASSED'} after {time.process_time() - began:5.1f} s  {mutation.name}\n    {found[:160]}",
            flush=True,
        )
    return 1 if passed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
