"""How much memory something takes at its peak, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
def _peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
{setup}
_before = _peak()
{code}
print("took", (_peak() - _before) >> 10)
"""


def megabytes_taken(setup: str, code: str) -> int:
    """By how many MiB ``code`` raises the peak of a new process that has run ``setup``, its imports."""
    program = _PROGRAM.format(setup=setup, code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.rpartition("took")[2])
