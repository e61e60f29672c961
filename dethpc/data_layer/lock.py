"""Locks between processes of a node, which the kernel releases when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Callable, Iterator, Optional

from dethpc.errors import DataLayerError

_LOOK_EVERY = 0.2  # seconds


@contextlib.contextmanager
def held(file: Path, waiting: Optional[Callable[[], None]] = None) -> Iterator[None]:
    """Hold the lock ``file``, which is made where it is missing, alone. ``waiting`` is called once when another has it.

    Raises DataLayerError where the file system has no locks, or nothing can be written.
    """
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataLayerError(f"nothing can be cached in {file.parent}: {error.strerror}") from error
    try:
        while not take(lock, file):
            if waiting is not None:
                waiting()
                waiting = None
            time.sleep(_LOOK_EVERY)  # and not for ever in the kernel, where a signal's handler is not called
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def held_if_free(file: Path) -> Iterator[bool]:
    """Whether the lock could be had, without waiting; it is held until the block ends."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        yield take(lock, file)
    finally:
        os.close(lock)


def take(lock: int, file: Path, *, shared: bool = False) -> bool:
    """Lock an open file, for as long as it is open in any process that inherits it; False: another process has it."""
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise DataLayerError(
            f"{file} cannot be locked ({error.strerror}): let data_layer name a folder on the node's own disk"
        ) from error
    return True
