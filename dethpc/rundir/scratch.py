"""What a run keeps on a node's own disk: one folder, which nobody else can enter, and which goes with the process that made it.

A process that is killed leaves its folder behind. Whoever makes the next one there, for any run of the same user, removes it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path

from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.process import lives, started
from dethpc.rundir.tree import remove

_PREFIX = "dethpc-"
_LONGEST = 70  # bytes: a socket's path may have 107
_OWNER = "owner.json"
"""``{"node", "pid", "pid_started"}``: while that process lives, the folder is used. Folders of earlier releases have none."""


def make(name: str, base: str) -> Path:
    """A new folder in ``base`` (0700), whose name begins so and cannot be foreseen. Raises OSError."""
    remove_left_over(base)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-", dir=base))
    me = os.getpid()
    owner = {"node": socket.gethostname(), "pid": me, "pid_started": started(me)}
    try:
        write_json(folder / _OWNER, owner, durable=False)
    except OSError:
        remove(folder)
        raise
    return folder


def make_until_exit(name: str) -> Path:
    """As ``make``, in the temporary folder, for as long as this process lives. Raises OSError."""
    folder, me = make(name, tempfile.gettempdir()), os.getpid()

    def leave() -> None:
        if os.getpid() == me:  # not where a child of it ends
            remove(folder)

    atexit.register(leave)
    return folder


def for_sockets(folder: Path, name: str) -> Path:
    """``folder``, or another new one where its path is too long for sockets in it. Raises OSError."""
    return folder if len(os.fsencode(folder)) <= _LONGEST else make(name, "/tmp")


def is_own(folder: str) -> bool:
    """Whether it is a folder, and no link to one, of this user's that nobody else can enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def remove_left_over(base: str) -> None:
    """Remove the folders of processes of this user that have ended on this node. A base that several nodes share is no harm."""
    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            folder = os.path.join(base, name)
            if name.startswith(_PREFIX) and is_own(folder) and _is_left_over(Path(folder)):
                remove(folder)


def _is_left_over(folder: Path) -> bool:
    try:
        owner = read_json(folder / _OWNER)
    except (OSError, RunDirError):
        return False
    return owner is not None and owner.get("node") == socket.gethostname() and not lives(owner)
