"""What can be found out about a job that left no end report."""

from __future__ import annotations

import os
from pathlib import Path

from dethpc.rundir.layout import RunDir


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
    """The last lines of a small log as one line; empty when there is none."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    return " / ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())
