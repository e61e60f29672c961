"""Unpacks the context into a directory of this node, and trusts nothing in the archive.

The rules are those of tarfile's "data" filter, which older Pythons lack: nothing lands or points outside the
directory, no devices, no owners, no special mode bits. The total is bounded besides.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
from typing import Optional, Sequence

from dethpc.errors import RunDirError
from dethpc.rundir import scratch
from dethpc.rundir.tree import LeadsOut, Tree, remove, stays

MAX_BYTES = 4 << 30
MAX_MEMBERS = 200_000
_BLOCK = 1 << 20


WORK = "work"


def scratch_with_context(name: str, bases: Sequence[str], fallback: str, archive: str, sha256: str) -> str:
    """A new folder (0700) with the context in ``WORK``: in the first of ``bases`` that has room, else in ``fallback``.

    Raises: RunDirError when the archive is damaged, unsafe or too large; OSError when no place takes it.
    """
    check(archive, sha256)
    failure = OSError("no place for a working directory")
    for base in [*bases, fallback]:
        folder = None
        try:
            folder = scratch.make(name, base)
            (folder / WORK).mkdir(mode=0o700)
            unpack(archive, str(folder / WORK))
            return str(folder)
        except BaseException as error:
            if folder is not None:
                remove(folder)
            if not isinstance(error, OSError):
                raise
            failure = error
    raise failure


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
    try:
        with tarfile.open(archive) as tar, Tree(into) as tree:
            unpacking, total = _Unpacking(tar, tree), 0
            for count, member in enumerate(tar, 1):
                total += max(member.size, 0) if member.isreg() else 0
                if total > max_bytes or count > max_members:
                    raise RunDirError(f"the context is too large: over {max_bytes} bytes or {max_members} files")
                unpacking.add(member)
            unpacking.close()
    except LeadsOut as error:
        raise RunDirError(f"the context has a path that leads outside: {error.filename}") from None
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RunDirError(f"the context {archive} cannot be unpacked: {error}") from None


class _Unpacking:
    def __init__(self, tar: tarfile.TarFile, tree: Tree) -> None:
        self._tar, self._tree = tar, tree
        self._links: set[str] = set()
        self._folders: dict[str, int] = {}  # with their modes

    def add(self, member: tarfile.TarInfo) -> None:
        path = self._inside(member.name, member.name)
        if not path:
            return
        if not member.isdir() and path in self._folders:
            raise RunDirError(f"the context holds {member.name} both as a directory and as something else")
        if path in self._links or (member.isdir() and path not in self._folders):
            self._tree.remove(path)  # the archive holds it twice
            self._links.discard(path)
        if member.isdir():
            self._folder(path, (member.mode & 0o755) | 0o700)
            return
        self._folder(os.path.dirname(path))
        if member.isreg():
            self._file(member, path)
        elif member.issym():
            if not stays(path, member.linkname):
                raise RunDirError(f"the context has a link that leads outside: {member.name} -> {member.linkname}")
            self._tree.remove(path)
            self._tree.symlink(path, member.linkname)
            self._links.add(path)
        elif member.islnk():
            source = self._inside(member.linkname, member.name)
            if source in self._links:
                raise RunDirError(f"the context has a hard link to a link: {member.name} -> {member.linkname}")
            self._tree.remove(path)
            self._tree.hard_link(path, source)
        else:
            raise RunDirError(f"the context has an entry that is not a file, directory or link: {member.name}")

    def close(self) -> None:
        """Give the folders their modes: last, so that a read-only one can be filled."""
        for path, mode in reversed(self._folders.items()):
            self._tree.chmod(path, mode)

    def _inside(self, name: str, member: str) -> str:
        """``name`` in its shortest form. Raises: RunDirError when that is outside, or behind a link."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            raise RunDirError(f"the context has a path that leads outside: {member} (exclude it with .detignore)")
        if any("/".join(parts[:n]) in self._links for n in range(1, len(parts))):
            raise RunDirError(f"the context has a path that leads through a link: {member}")
        return "/".join(parts)

    def _folder(self, path: str, mode: Optional[int] = None) -> None:
        parts = path.split("/") if path else []
        for n in range(1, len(parts) + 1):
            above = "/".join(parts[:n])
            if above not in self._folders:
                self._tree.make(above, 0o700)
                self._folders[above] = 0o700
        if mode is not None:
            self._folders[path] = mode

    def _file(self, member: tarfile.TarInfo, path: str) -> None:
        source = self._tar.extractfile(member)
        assert source is not None  # it is a regular file
        with source, self._tree.write(path) as target:
            shutil.copyfileobj(source, target, _BLOCK)
            target.flush()
            os.fchmod(target.fileno(), (member.mode & 0o755) | 0o600)
            with contextlib.suppress(OSError, OverflowError):
                os.utime(target.fileno(), (member.mtime, member.mtime))
