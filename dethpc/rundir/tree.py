"""Reads, writes and removes files of a tree that other processes may change meanwhile, without ever leaving it.

Every step goes through the descriptor of the folder above (``openat``) and follows no link by itself. What a link inside the tree
means is found out in the same steps: one that stays in the tree is followed, one that leads out is refused. So it makes no
difference when a folder becomes a link between a look and a use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from io import BufferedReader, BufferedWriter
from typing import Iterator, Optional, Tuple, Union

PathLike = Union[str, "os.PathLike[str]"]

_LINKS = 40  # on the way to one file, as in the kernel
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC


class LeadsOut(OSError):
    """A path or a link leads out of the tree."""

    def __init__(self, path: str, why: str = "It is a link that leads out of its folder") -> None:
        super().__init__(errno.ELOOP, why, path)


class Tree:
    """The folder ``root``, held open; it is no link itself. Paths are relative to it, with ``/``. Every method raises OSError."""

    def __init__(self, root: PathLike) -> None:
        if os.path.islink(root):
            raise LeadsOut(os.fspath(root), "It is a link in place of a folder")
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._root)

    def read(self, path: str) -> BufferedReader:
        """Open a regular file to read it; pipes and devices, which keep a reader for ever, are refused."""
        file = open(self._open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "It is no regular file", path)
        return file

    def status(self, path: str) -> os.stat_result:
        """Of what is there; of a link that cannot be followed in the tree, its own."""
        with self._above(path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            with contextlib.suppress(OSError):
                target = self._open(path, _LOOK)
                try:
                    return os.fstat(target)
                finally:
                    os.close(target)
        return status

    def walk(self) -> Iterator[Tuple[str, os.stat_result]]:
        """Everything below, folders before what is in them; their paths end in "/". What vanishes meanwhile is left out."""
        pending: list[Tuple[str, frozenset[Tuple[int, int]]]] = [("", frozenset())]
        while pending:
            here, above = pending.pop()
            try:
                folder = self._open(here, os.O_RDONLY | os.O_DIRECTORY) if here else os.dup(self._root)
            except FileNotFoundError:
                continue
            try:
                folder_status, names = os.fstat(folder), os.listdir(folder)
            finally:
                os.close(folder)
            me = (folder_status.st_dev, folder_status.st_ino)
            if me in above:
                continue  # a link to a folder that it is in
            for name in sorted(names):
                try:
                    status = self.status(here + name)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    yield f"{here}{name}/", status
                    pending.append((f"{here}{name}/", above | {me}))
                else:
                    yield here + name, status

    def make(self, path: str, mode: int = 0o777) -> None:
        """A folder and those above it, where they are missing; under the umask."""
        with self._above(f"{path}/_", mode):
            pass

    def sync(self, path: str) -> None:
        """Bring a file or a folder to disk."""
        held = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.fsync(held)
        finally:
            os.close(held)

    def replace(self, old: str, new: str) -> None:
        """Give a file another name, in place of what has it."""
        with self._above(old) as (here, old_name), self._above(new) as (there, new_name):
            os.replace(old_name, new_name, src_dir_fd=here, dst_dir_fd=there)

    def write(self, path: str) -> BufferedWriter:
        """Open a file of this user's to write it anew, and make the folders above. A link, a file that has other names, too, and
        somebody else's file make room."""
        file = self._own(path)
        os.ftruncate(file, 0)
        return open(file, "wb")

    def append(self, path: str) -> BufferedWriter:
        """As ``write``, but the file keeps what it has, and more comes behind it."""
        return open(self._own(path), "ab")

    def _own(self, path: str) -> int:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self._above(path, 0o777) as (folder, name):
            file: Optional[int] = None
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    file = os.open(name, flags, dir_fd=folder)
                    held = os.fstat(file)
                    if not stat.S_ISREG(held.st_mode) or held.st_nlink != 1 or held.st_uid != os.geteuid():
                        os.close(file)
                        file = None
                if file is None:
                    os.unlink(name, dir_fd=folder)
            if file is None:
                file = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        return file

    def symlink(self, path: str, target: str) -> None:
        with self._above(path, 0o777) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def hard_link(self, path: str, other: str) -> None:
        """Give the file ``other`` one more name."""
        with self._above(other) as (there, old), self._above(path, 0o777) as (folder, name):
            os.link(old, name, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False)

    def chmod(self, path: str, mode: int) -> None:
        held = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.fchmod(held, mode)
        finally:
            os.close(held)

    def remove(self, path: str) -> None:
        """A file, a link or a folder with all that is in it. Does nothing where there is none."""
        with contextlib.suppress(FileNotFoundError), self._above(path.rstrip("/")) as (folder, name):
            try:
                os.unlink(name, dir_fd=folder)
            except IsADirectoryError:
                remove(name, folder)

    # --- the way to a path ------------------------------------------------------------------------------------------------

    def _open(self, path: str, flags: int) -> int:
        with self._above(path, last=True) as (folder, name):
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)

    @contextlib.contextmanager
    def _above(self, path: str, make: Optional[int] = None, *, last: bool = False) -> Iterator[Tuple[int, str]]:
        """The descriptor of the folder that ``path`` is in, and the name there. ``make``: the mode of folders that are missing on
        the way. ``last``: a link at the end is followed, too."""
        if path.startswith("/"):
            raise LeadsOut(path, "It leads out of its folder")
        way, remaining, links = [os.dup(self._root)], _parts(path), 0
        try:
            while remaining:
                name = remaining.pop()
                if name == "..":
                    os.close(way.pop())
                    if not way:
                        raise LeadsOut(path)
                    continue
                target = _target(name, way[-1]) if remaining or last else None
                if target is not None:
                    links += 1
                    if target.startswith("/") or links > _LINKS:
                        raise LeadsOut(path)
                    remaining += _parts(target)
                elif not remaining:
                    yield way[-1], name
                    return
                else:
                    way.append(_enter(name, way[-1], make))
            yield way[-1], "."
        finally:
            for folder in way:
                os.close(folder)


def remove(path: PathLike, folder: Optional[int] = None) -> None:
    """Remove a folder (seen from the descriptor ``folder``, if there is one) with all that is in it, also what its modes forbid to
    enter. No link is followed, and no tree is too deep: what lies deeper is brought up. What will not go stays."""
    with contextlib.suppress(OSError):
        _let_in(os.fspath(path), folder)
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            stays: set[str] = set()
            while folders := set(_unlink_files(root)) - stays:
                stays.update(name for name in folders if not _remove_level(name, root))
        finally:
            os.close(root)
        os.rmdir(path, dir_fd=folder)


def _remove_level(name: str, root: int) -> bool:
    """Remove the folder ``name``; folders in it move up into ``root``. False: it stays."""
    try:
        _let_in(name, root)
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        try:
            for inner in _unlink_files(folder):
                _let_in(inner, folder)  # a folder that moves is written to: it gets another ".."
                os.rename(inner, f"{os.urandom(12).hex()}", src_dir_fd=folder, dst_dir_fd=root)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=root)
    except OSError:
        return False
    return True


def _unlink_files(folder: int) -> list[str]:
    """Unlink all but folders, and return those."""
    folders = []
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            folders.append(name)
        except OSError:
            continue
    return folders


def stays(path: str, target: str) -> bool:
    """Whether a link at ``path`` stays in its tree, whatever becomes of the folders that its ``target`` names: it goes up first,
    no further than the tree, and then down."""
    above, down = len(path.split("/")) - 1, target.split("/")
    while down and down[0] in ("..", ".", ""):
        above -= down.pop(0) == ".."
    return not target.startswith("/") and above >= 0 and ".." not in down


def _let_in(name: str, folder: Optional[int]) -> None:
    """Make a folder of this user's theirs to enter and change."""
    with contextlib.suppress(OSError):
        held = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=folder)
        try:
            if os.fstat(held).st_mode & 0o700 != 0o700:
                os.chmod(
                    f"/proc/self/fd/{held}", 0o700
                )  # it may be closed to reading, so that only its place can be held
        finally:
            os.close(held)


def _parts(path: str) -> list[str]:
    """Last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _target(name: str, folder: int) -> Optional[str]:
    """Where the link ``name`` leads; None: it is none."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _enter(name: str, folder: int, make: Optional[int]) -> int:
    try:
        return os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=folder)
    except FileNotFoundError:
        if make is None:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, make, dir_fd=folder)
    return os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=folder)
