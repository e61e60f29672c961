"""What an idle master costs: resident memory and processor time over a minute, with a search behind it.

python benchmarks/idle.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from setting import ROOT

SECONDS = 60


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as home:
        env = {**os.environ, "DETHPC_HOME": home, "PYTHONPATH": str(ROOT), "DETHPC_SCHEDULER": "local"}
        det = [sys.executable, "-m", "dethpc.cli"]
        subprocess.run([*det, "master", "up"], env=env, check=True, capture_output=True)
        try:
            for listing in ("experiment", "resource-pool"):
                subprocess.run([*det, listing, "list"], env=env, check=True, capture_output=True)
            pid = int((Path(home) / "master.json").read_text().partition('"pid": ')[2].partition(",")[0])
            time.sleep(5)
            before, start = cpu(pid), time.monotonic()
            time.sleep(SECONDS)
            share = (cpu(pid) - before) / (time.monotonic() - start)
            status = Path(f"/proc/{pid}/status").read_text()
            memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
            print(f"idle master: {memory:.0f} MiB resident, {share * 100:.2f} % of a core")
        finally:
            subprocess.run([*det, "master", "down"], env=env, check=False, capture_output=True)


def cpu(pid: int) -> float:
    """Seconds of processor time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
