"""Archive of an ended trial's run directories: one zip file beside them, read as if it were still a directory.

``runs/7.12.3.zip`` holds the files of runs 7.12.1 to 7.12.3, each under the name that it had below ``runs``. A file of more than
``BLOCK`` bytes is a folder of blocks, compressed each for itself, so that the end of a long log costs what the end costs. Any unzip
reads it. The member ``index.json`` comes last: ``{"format", "block", "files": {path: [mtime, blocks]}, "left_out"}``, where
``block`` is how many bytes a block has, and ``left_out`` has pairs of a path and what was there.

A path that leads through such a file, ``runs/7.12.3.zip/7.12.2/attempts/0/journal.jsonl``, is what the functions of
``dethpc.rundir.files`` read as any other, so that nobody else needs to know of this. What the master writes of a folded run later
is in ``runs/7.12.2/late`` until the trial is folded again, and takes the place of the member of its name. Whatever else is in the
directory of a folded run counts for nothing: a node that was given up may have written it.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Iterator, NamedTuple, Optional, Union

from dethpc.rundir.archives import Archives, late_of
from dethpc.rundir.files import descriptor, open_regular

FORMAT = 1
INDEX = "index.json"
BLOCK = 1 << 20
"""Bytes of a file that are compressed for themselves."""

MOST_INDEX = 64 << 20
_LARGEST_BLOCK = 64 << 20
_HEADER = 30  # bytes before a member's name

_THROUGH = re.compile(r"(.*/\d+\.\d+\.\d+\.zip)(?:/(.*))?", re.ASCII | re.DOTALL)
_IN_RUN = re.compile(r"(.*)/(\d+\.\d+\.\d+)/(.*)", re.ASCII | re.DOTALL)


class Block(NamedTuple):
    begin: int  # in the file
    header: int  # in the archive
    packed: int
    size: int
    crc: int
    deflated: bool


class Entry(NamedTuple):
    mtime: float
    size: int
    block: int  # bytes of each block but the last one
    blocks: tuple[Block, ...]


class Status(NamedTuple):
    st_size: int
    st_mtime: float


class Damaged(OSError):
    """An archive, or a part of it, cannot be read."""

    def __init__(self, path: Union[str, Path], why: object) -> None:
        super().__init__(errno.EIO, f"The archive is damaged ({why})", os.fspath(path))


class Index:
    """What an archive holds. ``entries``: by path, such as ``7.12.2/attempts/0/journal.jsonl``. ``left_out``: paths and what was
    there, which was neither a file nor a folder."""

    def __init__(self, entries: dict[str, Entry], left_out: list[tuple[str, str]]) -> None:
        self.entries, self.left_out = entries, left_out
        self.folders: dict[str, set[str]] = {}
        for path in entries:
            above, name = os.path.split(path)
            while name:
                names = self.folders.setdefault(above, set())
                if name in names:
                    break
                names.add(name)
                above, name = os.path.split(above)


def index_of(archive: Path) -> Index:
    """Raises OSError, Damaged where it is no whole archive."""
    fd = _opened(archive)
    try:
        return _index_at(fd, archive)
    finally:
        os.close(fd)


def _opened(archive: Path) -> int:
    return descriptor(archive, os.O_RDONLY | os.O_NOFOLLOW)


def _index_at(fd: int, archive: Path) -> Index:
    status = os.fstat(fd)
    return _index(archive, status.st_ino, status.st_size, status.st_mtime_ns, _Held(fd))


class _Held:
    """A descriptor that is no part of what a cache knows an archive by."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=256)
def _index(archive: Path, inode: int, size: int, changed_at: int, held: _Held) -> Index:
    """An archive is never written to; another takes its place."""
    try:
        with open(os.dup(held.fd), "rb") as file, zipfile.ZipFile(file) as opened:
            about = opened.getinfo(INDEX)
            if about.file_size > MOST_INDEX:
                raise ValueError("its index is too large")
            index = json.loads(opened.read(about))
            if index.get("format") != FORMAT:
                raise ValueError(f"its format is {index.get('format')!r}, and not {FORMAT}")
            entries = {path: _entry(opened, index["block"], path, *fields) for path, fields in index["files"].items()}
            return Index(entries, [(str(path), str(what)) for path, what in index["left_out"]])
    except (zipfile.BadZipFile, EOFError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise Damaged(archive, error) from None


def members_of(path: str, blocks: int) -> list[str]:
    """What the members are called that hold a file of so many blocks."""
    return [path] if blocks == 1 else [f"{path}/{number:06}" for number in range(blocks)]


def _entry(archive: zipfile.ZipFile, block: int, path: str, mtime: float, count: int) -> Entry:
    blocks, begin = [], 0
    if not 0 < block <= _LARGEST_BLOCK:
        raise ValueError(f"blocks of {block} bytes")
    for name in members_of(path, count):
        about = archive.getinfo(name)
        if about.file_size > block or about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is no block")
        deflated = about.compress_type == zipfile.ZIP_DEFLATED
        blocks.append(Block(begin, about.header_offset, about.compress_size, about.file_size, about.CRC, deflated))
        begin += about.file_size
        if about.file_size != block and len(blocks) < count:
            raise ValueError(f"{name} is too short")
    return Entry(float(mtime), begin, block, tuple(blocks))


class _Member(io.RawIOBase):
    """A file in an archive. Holds two blocks of it in memory, and the archive open, which may be replaced meanwhile.

    Two, because pieces that end with a line begin in one block and end in the next: from either end of the file each block is
    inflated once.
    """

    def __init__(self, fd: int, path: str, entry: Entry) -> None:
        super().__init__()
        self._fd, self._path, self._entry = fd, path, entry
        self._at = 0
        self._held: list[tuple[int, bytes]] = []  # blocks, each with its number

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._entry.size}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._at >= self._entry.size:
            return 0
        number, within = divmod(self._at, self._entry.block)
        block = self._block(number)
        size = min(len(buffer), len(block) - within)
        buffer[:size] = memoryview(block)[within : within + size]
        self._at += size
        return size

    def read_at(self, size: int, at: int) -> bytes:
        """So many bytes from there on, or what there is. Raises Damaged."""
        parts = []
        while size > 0 and at < self._entry.size:
            number, within = divmod(at, self._entry.block)
            parts.append(memoryview(self._block(number))[within : within + size])
            at, size = at + len(parts[-1]), size - len(parts[-1])
        return b"".join(parts)

    def _block(self, number: int) -> bytes:
        for held, block in self._held:
            if held == number:
                return block
        self._held = [held for held in self._held if abs(held[0] - number) == 1][:1]  # its neighbour, whose end is here
        self._held.append((number, self._read(self._entry.blocks[number])))
        return self._held[-1][1]

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()

    def _read(self, block: Block) -> bytes:
        header = os.pread(self._fd, _HEADER, block.header)
        if len(header) < _HEADER or header[:4] != b"PK\3\4":
            raise Damaged(self._path, "a block has no header")
        name, extra = struct.unpack("<HH", header[26:])
        packed = os.pread(self._fd, block.packed, block.header + _HEADER + name + extra)
        try:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, block.size + 1) if block.deflated else packed
        except zlib.error as error:
            raise Damaged(self._path, error) from None
        if len(data) != block.size or zlib.crc32(data) != block.crc:
            raise Damaged(self._path, "a block's checksum is another")
        return data


class _Place(NamedTuple):
    archive: Path
    path: str  # in the archive; "" is all of it

    @property
    def late(self) -> Optional[Path]:
        """Where the same is, if it is there, that the master wrote later; None: it wrote nothing of the run."""
        run, _, rest = self.path.partition("/")
        late = late_of(self.archive.parent / run)
        return late and late / rest


def place(path: Union[str, os.PathLike[str]]) -> Optional[_Place]:
    """Which archive a path leads through, and to what there; None: through none."""
    match = _THROUGH.fullmatch(os.fspath(path))
    return match and _Place(Path(match[1]), (match[2] or "").rstrip("/"))


def _required_place(path: Union[str, os.PathLike[str]]) -> _Place:
    location = place(path)
    if location is None:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))
    return location


def _no_file(path: Union[str, os.PathLike[str]]) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))


def moved(path: Union[str, os.PathLike[str]]) -> Optional[Path]:
    """Where a file is now whose run's directory is gone; None: the directory is there, or no archive holds the run."""
    match = _IN_RUN.fullmatch(os.fspath(path))
    if match is None or os.path.lexists(os.path.join(match[1], match[2])):
        return None
    archive = Archives(Path(match[1])).of(match[2])
    return archive and archive / match[2] / match[3]


def open_member(path: Union[str, os.PathLike[str]]) -> BinaryIO:
    """The file that ``path`` leads to through an archive. Raises OSError, Damaged."""
    at = _required_place(path)
    if (late := at.late) is not None:
        try:
            return open_regular(late)
        except (FileNotFoundError, NotADirectoryError):
            pass
    return opened_in(at.archive, at.path)


def opened_in(archive: Path, path: str) -> BinaryIO:
    """A file of an archive, whatever the archive is called and was written later. Raises OSError, Damaged."""
    fd = _opened(archive)
    try:
        index = _index_at(fd, archive)
        if path in index.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(archive / path))
        if path not in index.entries:
            raise _no_file(archive / path)
        return io.BufferedReader(_Member(fd, os.fspath(archive / path), index.entries[path]), 1 << 16)
    except BaseException:
        os.close(fd)
        raise


def status(path: Union[str, os.PathLike[str]]) -> Status:
    """Of a file or a folder in an archive. Raises OSError, Damaged."""
    at = _required_place(path)
    if (late := at.late) is not None:
        try:
            status = os.stat(late, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                return Status(status.st_size, status.st_mtime)
        except OSError:
            pass
    index = index_of(at.archive)
    if at.path in index.folders:
        return Status(0, os.stat(at.archive).st_mtime)
    if at.path not in index.entries:
        raise _no_file(path)
    entry = index.entries[at.path]
    return Status(entry.size, entry.mtime)


def names(path: Union[str, os.PathLike[str]]) -> list[str]:
    """What is in a folder of an archive. Raises OSError, Damaged."""
    at = _required_place(path)
    inside = set(index_of(at.archive).folders.get(at.path, ()))
    if at.path and (late := at.late) is not None:
        try:
            inside.update(name for name in os.listdir(late) if not name.endswith(".tmp"))
        except (FileNotFoundError, NotADirectoryError):
            pass
    if not inside:
        raise _no_file(path)
    return sorted(inside)


def walk(path: Union[str, os.PathLike[str]]) -> Iterator[str]:
    """The files below a folder of an archive, as paths from there. Raises OSError, Damaged."""
    at = _required_place(path)
    inside = f"{at.path}/" if at.path else ""
    paths = {name[len(inside) :] for name in index_of(at.archive).entries if name.startswith(inside)}
    if at.path and (late := at.late) is not None:
        for folder, _, files in os.walk(late):
            below = os.path.relpath(folder, late)
            paths.update(os.path.normpath(os.path.join(below, name)) for name in files if not name.endswith(".tmp"))
    return iter(sorted(paths))
