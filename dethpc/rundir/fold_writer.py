"""Writing the archive of a folded trial (``dethpc.rundir.folded``): what goes into it, the file itself, and its proof.

Everything works in pieces of about a megabyte, between which the caller may rest, stop, or look after others.
"""

from __future__ import annotations

import json
import os
import stat
import time
import zipfile
from pathlib import Path
from typing import BinaryIO, Iterable, Iterator, NamedTuple, Tuple

from dethpc.rundir import folded
from dethpc.rundir.files import descriptor, open_regular, status, walk

_LEVEL = 6
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Signature = Tuple[int, int, int]
"""Inode, size and time of the last change: a file that was written to has another one."""


class Unfit(OSError):
    """A directory holds what cannot be folded."""


class DirectoryContents(NamedTuple):
    """What is in a directory. ``files``: by path from there; ``others``: what is neither file nor folder, and what it is."""

    files: dict[str, Signature]
    others: dict[str, str]


def look(top: Path) -> DirectoryContents:
    """All that is below ``top``, no link followed and nothing opened but folders. Raises OSError, Unfit for another user's file."""
    contents = DirectoryContents({}, {})
    pending = [""]
    while pending:
        here = pending.pop()
        fd = _folder(top, here)
        try:
            with os.scandir(fd) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    _sort(entry, here + entry.name, contents, pending)
        finally:
            os.close(fd)
    return contents


def _sort(entry: os.DirEntry[str], path: str, contents: DirectoryContents, pending: list[str]) -> None:
    about = entry.stat(follow_symlinks=False)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Unfit(f"the name {path!r} is no text") from None
    if about.st_uid != os.geteuid():
        raise Unfit(f"{path} belongs to user {about.st_uid}")
    if stat.S_ISDIR(about.st_mode):
        pending.append(f"{path}/")
    elif stat.S_ISREG(about.st_mode):
        contents.files[path] = (about.st_ino, about.st_size, about.st_mtime_ns)
    else:
        contents.others[path] = _kind(about.st_mode)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _folder(top: Path, below: str) -> int:
    """The descriptor of a folder, reached through no link. Raises OSError."""
    fd = os.open(top, _FOLDER)
    for name in below.split("/")[:-1]:
        try:
            inner = os.open(name, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


class Source(NamedTuple):
    """One file that goes into an archive: ``path`` there; below ``top``, or, where that is a path through an archive, in that."""

    path: str
    top: Path
    below: str

    def open(self) -> tuple[BinaryIO, float]:
        """The file, and when it was changed last. Raises OSError."""
        if folded.place(self.top) is not None:
            return open_regular(self.top / self.below), status(self.top / self.below).st_mtime
        above, name = os.path.split(self.below)
        folder = _folder(self.top, f"{above}/" if above else "")
        try:
            file = open(os.open(name, _FILE, dir_fd=folder), "rb")
        finally:
            os.close(folder)
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            file.close()
            raise Unfit(f"{self.below} is no regular file any more")
        return file, about.st_mtime


def sources(run_id: str, top: Path) -> Iterator[Source]:
    """The files of a run that is folded already; ``top`` is the path through its archive. Raises OSError."""
    return (Source(f"{run_id}/{below}", top, below) for below in walk(top))


def write(part: Path, files: Iterable[Source], left_out: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Write an archive, and bring it to disk. What there is of it when this ends early is no archive. Raises OSError, Unfit."""
    fd = descriptor(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        entries: dict[str, tuple[float, int]] = {}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for source in files:
                opened, mtime = source.open()
                with opened:
                    blocks = 0
                    for name, block in _blocks(source.path, opened):
                        archive.writestr(_about(name, mtime), block, zipfile.ZIP_DEFLATED, _LEVEL)
                        blocks += 1
                        yield
                entries[source.path] = mtime, blocks
            index = {"format": folded.FORMAT, "block": folded.BLOCK, "files": entries, "left_out": list(left_out)}
            archive.writestr(_about(folded.INDEX, time.time()), json.dumps(index), zipfile.ZIP_DEFLATED, _LEVEL)
        file.flush()
        os.fsync(file.fileno())
        yield
        if hasattr(os, "posix_fadvise"):  # what is proved shall come from the disk
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _blocks(path: str, file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    block = file.read(folded.BLOCK)
    more = file.read(folded.BLOCK) if len(block) == folded.BLOCK else b""
    if not more:
        yield path, block
        return
    number = 0
    while block:
        yield f"{path}/{number:06}", block
        block, more = more, file.read(folded.BLOCK) if len(more) == folded.BLOCK else b""
        number += 1


def _about(name: str, mtime: float) -> zipfile.ZipInfo:
    """For unzip; the time that counts is in the index."""
    at = time.localtime(min(max(mtime, 315_619_200.0), 4_354_819_198.0))  # the years that a zip file knows
    about = zipfile.ZipInfo(name, (at.tm_year, at.tm_mon, at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec))
    about.external_attr = (stat.S_IFREG | 0o600) << 16
    about.create_system = 3
    return about


def prove(part: Path, paths: Iterable[str]) -> Iterator[None]:
    """Read an archive to its end: it holds these files, and every checksum is right. Raises OSError, Damaged."""
    index = folded.index_of(part)
    if (missing := set(paths) ^ index.entries.keys()) != set():
        raise folded.Damaged(part, f"it does not hold what was written: {sorted(missing)[:3]}")
    for path in index.entries:
        with folded.opened_in(part, path) as file:
            while file.read(folded.BLOCK):
                yield
