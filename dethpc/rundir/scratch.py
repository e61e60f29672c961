"""Scratch folder of a run on a node's own disk: private (0700), and removed with the process that made it.

A process that is killed leaves its folder behind. The next run of the same user on that node removes it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path

from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.process import lives, namespace, started
from dethpc.rundir.tree import remove

_PREFIX = "dethpc-"
_LONGEST = 70  # bytes: a socket's path may have 107
_OWNER, _USED = "owner.json", "used"
"""``{"node", "pids", "pid", "pid_started"}``: while that process lives, the folder is used. Folders of earlier releases have none.
A container may count its processes anew: of a process of another namespace (``pids``) the lock on the second file tells."""


def make(name: str, base: str) -> Path:
    """A new folder in ``base`` (0700), whose name begins so and cannot be foreseen. Raises OSError."""
    import tempfile  # a training asks no more than whose its folder is

    remove_left_over(base)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-", dir=base))
    me = os.getpid()
    owner = {"node": socket.gethostname(), "pids": namespace(), "pid": me, "pid_started": started(me)}
    try:
        _hold(folder / _USED)
        write_json(folder / _OWNER, owner, durable=False)
    except OSError:
        remove(folder)
        raise
    return folder


def make_until_exit(name: str) -> Path:
    """As ``make``, in the temporary folder, for as long as this process lives. Raises OSError."""
    import tempfile

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
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


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
    if owner is None or owner.get("node") != socket.gethostname():
        return False
    if owner.get("pids") in (None, namespace()):
        return not lives(owner)
    return not _is_held(folder / _USED)


def _hold(file: Path) -> None:
    """Lock a new file for as long as this process lives. A file system without locks keeps what a killed container leaves."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # is never closed
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        os.close(fd)
        os.unlink(file)


def _is_held(file: Path) -> bool:
    """Whether a process on this node holds it, or nobody can say."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
