"""What can be found out about a job that left no end report."""

from __future__ import annotations

import os
from pathlib import Path

from dethpc.rundir.files import open_regular
from dethpc.rundir.layout import RunDir

_READ = 4096  # bytes: a user's script may have written anything into the log of its job


def why_no_report(run_dir: RunDir) -> str:
    """A full file system, or the last lines of Slurm's log; empty when neither says anything."""
    try:
        room = os.statvfs(run_dir.path)
        if room.f_bavail == 0 or (room.f_files and room.f_favail == 0):
            return f"No space left on the file system of {run_dir.path}"
    except OSError:
        pass
    return _tail(run_dir.log)


def _tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log as one line; empty when there is none."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
            text = file.read(_READ).decode(errors="replace")
    except OSError:
        return ""
    return " / ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())
