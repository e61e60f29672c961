"""Unpack the context into a directory of this node's own, trusting nothing in the archive.

The rules are those of tarfile's "data" filter, which older Pythons lack: nothing lands or points outside the
directory, no devices, no owners, no special mode bits. The total is bounded besides.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
from typing import Sequence

from dethpc.errors import RunDirError

MAX_BYTES = 4 << 30
MAX_MEMBERS = 200_000
_BLOCK = 1 << 20


def working_directory(prefix: str, bases: Sequence[str], fallback: str, archive: str, sha256: str) -> str:
    """A new directory (0700) that holds the context: in the first of ``bases`` that has room, else in ``fallback``.

    Raises: RunDirError when the archive is damaged, unsafe or too large; OSError when no place takes it.
    """
    check(archive, sha256)
    failure = OSError("no place for a working directory")
    for base in [*bases, fallback]:
        directory = None
        try:
            directory = tempfile.mkdtemp(prefix=prefix + "-", dir=base)
            unpack(archive, directory)
            return directory
        except BaseException as error:
            if directory is not None:
                remove(directory)
            if not isinstance(error, OSError):
                raise
            failure = error
    raise failure


def remove(directory: str) -> None:
    """Remove the tree, including directories that user code made unreadable. What will not go stays; nobody depends
    on it."""
    for parent, directories, _ in os.walk(directory):
        for name in directories:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)


def check(archive: str, sha256: str) -> None:
    """Raises: RunDirError when the archive is not the one that the master stored; OSError when it cannot be read."""
    if not sha256:
        return
    digest = hashlib.sha256()
    with open(archive, "rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            digest.update(block)
    if digest.hexdigest() != sha256:
        raise RunDirError(f"the context {archive} is damaged: its SHA-256 does not match")


def unpack(archive: str, into: str, max_bytes: int = MAX_BYTES, max_members: int = MAX_MEMBERS) -> None:
    """Unpack the tar file (of any compression) into the existing directory ``into``. Raises: RunDirError, OSError."""
    root = os.path.realpath(into)
    total = 0
    modes: list[tuple[str, int]] = []
    try:
        with tarfile.open(archive) as tar:
            for count, member in enumerate(tar, 1):
                total += max(member.size, 0) if member.isreg() else 0
                if total > max_bytes or count > max_members:
                    raise RunDirError(f"the context is too large: over {max_bytes} bytes or {max_members} files")
                path = _inside(root, member.name, member.name)
                if path == root:
                    continue
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                if member.isdir():
                    if os.path.islink(path) or not os.path.isdir(path):
                        _clear(path, member.name)
                        os.mkdir(path, 0o700)
                    modes.append((path, (member.mode & 0o755) | 0o700))
                elif member.isreg():
                    _file(tar, member, path)
                elif member.issym():
                    _inside(root, os.path.join(os.path.dirname(path), member.linkname), member.name)
                    if os.path.isabs(member.linkname):
                        raise RunDirError(
                            f"the context has a link that leads outside: {member.name} -> {member.linkname}"
                        )
                    _clear(path, member.name)
                    os.symlink(member.linkname, path)
                elif member.islnk():
                    source = _inside(root, member.linkname, member.name)
                    _clear(path, member.name)
                    os.link(source, path)
                else:
                    raise RunDirError(f"the context has an entry that is not a file, directory or link: {member.name}")
        for path, mode in reversed(modes):  # last, so that a read-only directory can be filled
            os.chmod(path, mode)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RunDirError(f"the context {archive} cannot be unpacked: {error}") from None


def _inside(root: str, name: str, member: str) -> str:
    """Where ``name`` ends up, links in its directory followed. Raises: RunDirError when that is outside ``root``."""
    joined = os.path.join(root, name)
    path = os.path.join(os.path.realpath(os.path.dirname(joined)), os.path.basename(joined))
    path = os.path.normpath(path)
    for candidate in (path, os.path.realpath(path)):
        if candidate != root and not candidate.startswith(root + os.sep):
            raise RunDirError(f"the context has a path that leads outside: {member} (exclude it with .detignore)")
    return path


def _file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    _clear(path, member.name)
    source = tar.extractfile(member)
    assert source is not None  # it is a regular file
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with source, open(fd, "wb") as target:
        shutil.copyfileobj(source, target, _BLOCK)
        os.fchmod(target.fileno(), (member.mode & 0o755) | 0o600)
    with contextlib.suppress(OSError, OverflowError):
        os.utime(path, (member.mtime, member.mtime))


def _clear(path: str, member: str) -> None:
    """Make way for a member that the archive holds twice."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise RunDirError(f"the context holds {member} both as a directory and as something else")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
