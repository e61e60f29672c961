"""How long a job may run, as Slurm writes it."""

from __future__ import annotations

import re
from typing import Optional

_FORM = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def seconds(text: str) -> Optional[float]:
    """Seconds of MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS; None for ``infinite`` and whatever is no such time."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, secs = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, secs = parts
    else:  # minutes[:seconds]
        hours, minutes, secs = [0, *parts, 0][:3]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs)
