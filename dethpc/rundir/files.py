"""Small JSON files that a reader sees whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import stat
from typing import Any, BinaryIO, Optional, Union

from dethpc.errors import RunDirError

Path = Union[str, "os.PathLike[str]"]

MOST_BYTES = 16 << 20
"""How large a JSON file of a run may be."""

MOST_VALUES = 500_000
"""How many values a JSON text may hold: an empty list takes three bytes there, and some twenty times as many in memory."""

_SUM = "sha256"
"""Key of the digest over all other values."""

_counter = itertools.count()


def write_json(path: Path, obj: dict[str, Any], *, durable: bool = True) -> None:
    """Write ``obj`` to ``path`` (mode 0600) in one step, on disk when this returns unless it need not be ``durable``.

    Raises: OSError (disk full, I/O error); then ``path`` is what it was before.
    """
    staged = _stage(path, obj, durable=durable)
    try:
        os.replace(staged, path)
    except OSError:
        _unlink(staged)
        raise
    if durable:
        _sync_directory(path)


def create_once(path: Path, obj: dict[str, Any]) -> bool:
    """Create ``path`` holding ``obj`` unless it exists. Of several callers, on several nodes, exactly one gets True.

    Raises: OSError.
    """
    staged = _stage(path, obj)
    try:
        try:
            os.link(staged, path)
        except FileExistsError:
            # Over NFS a repeated request may answer "exists" about the link that its first copy made.
            if os.stat(staged).st_nlink != 2:
                return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            return _create_without_link(path, obj)
    finally:
        _unlink(staged)
    _sync_directory(path)
    return True


def sealed(obj: dict[str, Any]) -> dict[str, Any]:
    """``obj`` with a digest, by which ``read_json`` notices a value that the disk altered: it may well be JSON still."""
    return {**obj, _SUM: _digest(obj)}


def _digest(obj: dict[str, Any]) -> str:
    """Of the values as they are read again."""
    read = json.loads(json.dumps(obj))
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def read_json(path: Path) -> Optional[dict[str, Any]]:
    """The object in ``path``, or None when there is no such file.

    Raises: RunDirError when it holds no JSON object, or other values than those that were ``sealed``; OSError.
    """
    try:
        data = _read(path, MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise RunDirError(f"{os.fspath(path)} is damaged: it is a directory") from None
    if len(data) > MOST_BYTES or too_many_values(data):
        allowed = f"{MOST_BYTES >> 20} MiB and {MOST_VALUES} values are allowed"
        raise RunDirError(f"{os.fspath(path)} is damaged: it is too large; {allowed}")
    try:
        obj = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunDirError(f"{os.fspath(path)} is damaged: {error}") from None
    if not isinstance(obj, dict):
        raise RunDirError(f"{os.fspath(path)} is damaged: it holds no JSON object")
    if _SUM in obj and obj.pop(_SUM) != _digest(obj):
        raise RunDirError(f"{os.fspath(path)} is damaged: its values are not those that were written")
    return obj


def too_many_values(json_text: Union[str, bytes]) -> bool:
    """Whether it may hold more than ``MOST_VALUES``: each begins a list or a mapping, or has a comma before it."""
    if len(json_text) <= MOST_VALUES:
        return False
    if isinstance(json_text, str):
        return sum(map(json_text.count, ("[", "{", ","))) > MOST_VALUES
    return sum(map(json_text.count, (b"[", b"{", b","))) > MOST_VALUES


def read_object(path: Path) -> dict[str, Any]:
    """The object in ``path``; {} when there is none that can be read."""
    try:
        return read_json(path) or {}
    except (OSError, RunDirError):
        return {}


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it. What is no regular file is refused: a pipe or a device would keep the reader for ever.

    Raises: OSError.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "It is no regular file", os.fspath(path))
    return file


def _read(path: Path, most: int) -> bytes:
    for attempt in (1, 2, 3):
        try:
            with open_regular(path) as file:
                return file.read(most)
        except OSError as error:
            # NFS: the file was replaced between look-up and read; the next look-up finds the new one.
            if error.errno != errno.ESTALE or attempt == 3:
                raise
    raise AssertionError("unreachable")


def _stage(path: Path, obj: dict[str, Any], *, durable: bool = True) -> str:
    data = json.dumps(obj).encode() + b"\n"
    staged = f"{os.fspath(path)}.{os.uname().nodename}.{os.getpid()}.{next(_counter)}.tmp"
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except OSError:
        _unlink(staged)
        raise
    return staged


def _create_without_link(path: Path, obj: dict[str, Any]) -> bool:
    """For file systems without hard links: exclusive still, but a reader may see the file before its content."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with open(fd, "wb") as file:
        file.write(json.dumps(obj).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def _sync_directory(path: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems refuse it; the rename itself has happened
        fd = os.open(os.path.dirname(os.fspath(path)) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
