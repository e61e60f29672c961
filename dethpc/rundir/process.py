"""Identity of the process that wrote a file: its id, which may be reused, with its start time, which makes it unique."""

from __future__ import annotations

import os
from typing import Any, List, Mapping, Optional, Union


def stat_fields(pid: Union[int, str]) -> List[bytes]:
    """The fields of ``/proc/PID/stat`` from the state on; none when the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()  # the name before may hold anything, also half a character
    except OSError:
        return []


def started(pid: int) -> Optional[int]:
    """When the process of this host started, in clock ticks since boot; None when it has ended."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] != b"Z" else None


def namespace() -> str:
    """Which processes this one counts among: numbers mean nothing in another. "" where the system does not say."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def lives(held: Mapping[str, Any]) -> bool:
    """Whether the process of this host that wrote ``pid`` and ``pid_started`` lives."""
    pid = held.get("pid")
    start = started(pid) if isinstance(pid, int) and pid > 0 else None
    return start is not None and start == held.get("pid_started")
