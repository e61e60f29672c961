"""What Slurm's own programs complain of where a batch script wrote, among its other words."""

from __future__ import annotations

import re

# Some have the node behind their name: "slurmstepd-n1: error: ...".
_COMPLAINT = re.compile(r"(?:slurm\w+|s(?:run|batch|alloc|bcast|cancel|control))(?:-[\w.-]+)?: (error|fatal|warning):")
_LEVELS = {"error": "ERROR", "fatal": "CRITICAL", "warning": "WARNING"}


def level(text: str) -> str:
    """That of a line of a log."""
    found = _COMPLAINT.match(text)
    return _LEVELS[found[1]] if found else "INFO"
