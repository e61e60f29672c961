"""Which file system holds a path, and what that means for the database there."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import Optional

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # blanks and backslashes; the kernel writes all else as it is

SHARED = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse.ceph",
    "afs",
    "orangefs",
    "panfs",
    "wekafs",
    "glusterfs",
)
"""File systems of several machines, as the kernel names them; ``fuse.`` may stand before."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says of a disk or a quota that has no room."""

_LEAST = 64 << 10  # bytes; with less, most of what is written has no room


def is_network(filesystem: str) -> bool:
    return filesystem.removeprefix("fuse.").split(".")[0] in SHARED


def unwritable(path: Path) -> str:
    """Why nothing can be written where ``path`` is, with the path, as the file system tells without being tried; "" where it tells
    nothing. It does not tell of every quota."""
    try:
        status = os.statvfs(path)
    except OSError:
        return ""
    if status.f_flag & os.ST_RDONLY:
        return f"{path}: {os.strerror(errno.EROFS)}"
    free = status.f_bavail if os.geteuid() else status.f_bfree
    full = status.f_blocks and free * status.f_frsize < _LEAST
    return f"{path}: {os.strerror(errno.ENOSPC)}" if full else ""


def mount(path: Path, mounts: Path = _MOUNTS) -> tuple[str, str]:
    """(device, type) of the file system that holds ``path``."""
    best, filesystem = "", ("", "unknown")
    real = str(path.resolve())
    with contextlib.suppress(OSError):
        for line in os.fsdecode(mounts.read_bytes()).split("\n"):
            before, separated, after = line.partition(" - ")
            if not separated:
                continue
            point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, filesystem = point, (after.split()[1], after.split()[0])
    return filesystem


def filesystem(path: Path, mounts: Path = _MOUNTS) -> str:
    """The type of the file system that holds ``path``, such as ``ext4``, ``nfs4`` or ``lustre``."""
    return mount(path, mounts)[1]


def sqlite_warning(filesystem: str, home: str, database: Optional[str]) -> Optional[str]:
    """What to say at a master's start when its SQLite database lies where locks may not hold."""
    if database is not None or not is_network(filesystem):
        return None
    return (
        f"the database is SQLite in {home}, on {filesystem}, where locks may not hold between machines: "
        "det doctor --check-nodes tries them, and PostgreSQL (database in the site configuration) needs none"
    )
