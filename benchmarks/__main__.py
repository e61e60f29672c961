"""Run the benchmarks one after the other, and keep their figures in one file.

A benchmark that was measured before is replaced in the file; others stay. What fails is kept with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import BENCHES, ENDURANCE

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
LIMITS = {True: 300, False: 3600}
"""Seconds that one may take, quick and not, on a machine that does much else."""


def main() -> int:
    options = arguments()
    names = [name for group in BENCHES.values() for name in group]
    if options.list:
        for heading, group in BENCHES.items():
            print(f"{heading}: {', '.join(group)}")
        print(f"by themselves, for as long as you like: {', '.join(ENDURANCE)}")
        return 0
    if unknown := set(options.only) - set(names):
        print(f"There is no benchmark {', '.join(sorted(unknown))}; --list shows them all.", file=sys.stderr)
        return 2
    results = json.loads(options.json.read_text()) if options.json.exists() else {}
    began, failed = time.monotonic(), 0
    for name in options.only or names:
        print(f"\n--- {name}", flush=True)
        if not (ROOT / "benchmarks" / f"{name}.py").exists():
            print("is not there yet")
            continue
        results[name] = measured(name, options.quick)
        failed += "failed" in results[name]
        ordered = {known: results[known] for known in names if known in results}
        options.json.write_text(json.dumps(ordered, indent=1) + "\n")
    print(f"\n{time.monotonic() - began:.0f} s, {failed} failed; figures in {options.json}")
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--quick", action="store_true", help="smaller counts: less than ten minutes in all")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="default: benchmarks/results.json")
    return parser.parse_args()


def measured(name: str, quick: bool) -> dict[str, Any]:
    """What the command wrote, or why it did not."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file), *(["--quick"] if quick else [])]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            _, errors = process.communicate(timeout=LIMITS[quick])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)  # what it has started, it ends
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            errors = f"not done after {LIMITS[quick]} s"
        if process.returncode == 0 and file.exists():
            return dict(json.loads(file.read_text()))
        print(errors, file=sys.stderr)
        return {"failed": (errors.strip().splitlines() or [f"ended with {process.returncode}"])[-1][:200]}


if __name__ == "__main__":
    sys.exit(main())
