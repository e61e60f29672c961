"""Checksums of a checkpoint's files.

The manifest is a file in the checkpoint that is not listed among its resources: ``{"version": 1, "block": bytes, "owner":
{"cluster", "experiment", "trial", "experiment_uuid"}, "files": {path: {"size": bytes, "crc32": [one per block, 8 hexadecimal
digits]}}, "crc32": of all this}``; earlier releases wrote no sum of the manifest itself, and no owner (see ``ownership``). CRC-32
finds damage at memory speed, where a cryptographic hash would take as long as writing the checkpoint. Several cores share one large
file: each sums parts of blocks, which are then put together.

A large file may be without its ``crc32`` when the checkpoint is published. What is summed later adds a *part*: a manifest of the
same form beside the first, which only fills in what is missing there.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from dethpc.errors import CheckpointDamaged, CheckpointError
from dethpc.rundir.tree import LeadsOut, Tree
from dethpc.storage import ownership
from dethpc.storage.ownership import Owner

NAME = ".dethpc-manifest.json"
_PARTS = f"{NAME}.part-"
_SUM = "crc32"
BLOCK = 64 << 20
_MOST_BYTES = 256 << 20  # of a manifest: a checkpoint of some two million files has as much
_LONGEST, _LONGEST_PART = 4096, 255  # bytes of a path, with its end, and of a name in it, on Linux
_PART = 8 << 20  # what one core sums at a time; a block is a whole number of them
_CHUNK = 1 << 20
_SMALL = 8 << 20  # less than this in all is not worth starting threads
_FEW, _SOON = 8, 64 << 20  # files, and bytes in all, up to which threads cost more than one after another to disk


class Checksum(NamedTuple):
    """Size in bytes and one CRC-32 per block of ``BLOCK`` bytes; None: not summed yet."""

    size: int
    crcs: Optional[Tuple[int, ...]]


Checksums = Dict[str, Checksum]


def measure(root: Path, paths: Sequence[str], threads: int = 0) -> Checksums:
    """Checksums of the files ``paths`` below ``root``, by that many threads; 0: one for each core."""
    with Tree(root) as tree:
        sizes = {path: tree.status(path).st_size for path in paths}
        parts = [(path, at) for path in paths for at in range(0, sizes[path], _PART)]

        def crc(part: Tuple[str, int]) -> int:
            return _crc(tree, part[0], part[1])

        if sum(sizes.values()) < _SMALL or threads == 1:
            crcs = [crc(part) for part in parts]
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(threads or _cores()) as pool:
                crcs = list(pool.map(crc, parts))
    by_path: Dict[str, List[int]] = {path: [] for path in paths}
    for (path, _), value in zip(parts, crcs):
        by_path[path].append(value)
    return {path: put_together(sizes[path], by_path[path], _PART) for path in paths}


def put_together(size: int, crcs: Sequence[int], part: int) -> Checksum:
    """Of a file of ``size`` bytes, from the CRC-32 of each of its parts of ``part`` bytes; a block is a whole number of them."""
    blocks: List[int] = []
    for n, crc in enumerate(crcs):
        at = n * part
        if at % BLOCK == 0:
            blocks.append(crc)
        else:
            blocks[-1] = combine(blocks[-1], crc, min(part, size - at))
    return Checksum(size, tuple(blocks))


class Summing:
    """The checksum of content that goes by in pieces, of which none may reach over the end of a block."""

    def __init__(self) -> None:
        self._size = 0
        self._crcs: List[int] = []

    def add(self, piece: Union[bytes, memoryview]) -> None:
        if self._size % BLOCK == 0:
            self._crcs.append(0)
        self._crcs[-1] = zlib.crc32(piece, self._crcs[-1])
        self._size += len(piece)

    @property
    def checksum(self) -> Checksum:
        return Checksum(self._size, tuple(self._crcs))


def copy(source: BufferedReader, target: BufferedWriter) -> Checksum:
    """Copy a file's content and sum it on the way, so that it is read once."""
    summing = Summing()
    buffer = memoryview(bytearray(_CHUNK))
    while n := source.readinto(buffer):
        target.write(buffer[:n])
        summing.add(buffer[:n])
    return summing.checksum


def checked(uuid: str, path: str, expected: Checksum, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of a file, none of which reaches over the end of a block. Raises CheckpointDamaged at their end where they are not
    what was stored."""
    summing = Summing()
    for piece in pieces:
        summing.add(piece)
        if summing.checksum.size > expected.size:
            break
        yield piece
    if summing.checksum.size != expected.size:
        raise CheckpointDamaged(
            f"checkpoint {uuid}: {path} has {summing.checksum.size} bytes, and had {expected.size} when stored"
        )
    compare(uuid, {path: expected}, {path: summing.checksum})


class Flushing:
    """Brings files and directories of ``tree`` to disk until the block ends; raises OSError at its end. ``files`` are so many, of
    ``size`` bytes together: several at once, from the call of ``add`` on, where that saves more time than threads cost."""

    def __init__(self, tree: Tree, files: int, size: int) -> None:
        self._tree = tree
        self._flushes: List[Any] = []
        self._later: List[str] = []
        self._pool: Optional[Any] = None
        if files > _FEW or size > _SOON:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(_FEW)

    def add(self, paths: Iterable[str]) -> None:
        if self._pool is None:
            self._later.extend(paths)
            return
        for path in paths:
            try:
                self._flushes.append(self._pool.submit(self._tree.sync, path))
            except RuntimeError:  # the interpreter is about to end, and starts no thread any more
                self._later.append(path)

    def __enter__(self) -> Flushing:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if exc[0] is None:
            for path in self._later:
                self._tree.sync(path)
            for flush in self._flushes:
                flush.result()


def write(root: Path, sums: Checksums, *, part: Optional[int] = None) -> None:
    """Replace the manifest of the checkpoint at ``root``, or a part of it, in one step, and bring it to disk. It names the same
    owner as before."""
    name = NAME if part is None else f"{_PARTS}{part}"
    staged = f"{NAME}.{os.getpid()}.{name[len(NAME) :]}"
    with Tree(root) as tree:
        put(tree, sums, staged, owner_in(tree) if part is None else None)
        tree.sync(staged)
        tree.replace(staged, name)


def put(tree: Tree, sums: Checksums, name: str = NAME, owner: Optional[Owner] = None) -> None:
    """Write the manifest of a checkpoint that nobody reads yet."""
    with tree.write(name) as file:
        file.write(encoded(sums, owner))


def owner_in(tree: Tree) -> Optional[Owner]:
    """Whom the manifest of the checkpoint at ``tree`` names; None: nobody, or there is none. Raises OSError."""
    try:
        with tree.read(NAME) as file:
            return ownership.of_manifest(file.read(_CHUNK))
    except (FileNotFoundError, IsADirectoryError, LeadsOut):
        return None


def load(root: Path) -> Optional[Checksums]:
    """The manifest, or None when the checkpoint has none (Determined wrote it). Raises CheckpointDamaged when damaged, or when
    nothing but directories is left of the checkpoint: what cleans scratch file systems up deletes files, and leaves these."""
    sums = _read(root, NAME)
    if sums is None and not files_of(listing(root)):
        raise CheckpointDamaged(f"checkpoint {root.name}: its files are gone")
    if sums is not None and any(s.crcs is None for s in sums.values()):
        for name in sorted(os.listdir(root)):
            if name.startswith(_PARTS):
                for path, s in (_read(root, name) or {}).items():
                    if path in sums and sums[path].crcs is None:
                        sums[path] = s
    return sums


def verify(root: Path, sums: Checksums) -> None:
    """Raises CheckpointDamaged that names the first file that is missing or differs, OSError where files cannot be read. Of a file
    without checksums the size says."""
    check_sizes(root, sums)
    compare(root.name, sums, measure(root, [path for path, s in sums.items() if s.crcs is not None]))


def check_sizes(root: Path, sums: Checksums) -> None:
    """As ``verify``, without reading the files."""
    with Tree(root) as tree:
        for path, expected in sums.items():
            try:
                status = tree.status(path)
            except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: a name that no file can have
                raise CheckpointDamaged(f"checkpoint {root.name}: {path} is missing") from None
            except LeadsOut as error:
                raise CheckpointDamaged(f"checkpoint {root.name}: {error.strerror}: {path}") from None
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointDamaged(f"checkpoint {root.name}: {path} is no file any more")
            if status.st_size != expected.size:
                raise CheckpointDamaged(
                    f"checkpoint {root.name}: {path} has {status.st_size} bytes, and had {expected.size} when stored"
                )


def compare(uuid: str, expected: Checksums, sums: Checksums) -> None:
    """Raises CheckpointDamaged that names the first file of ``sums`` that differs."""
    for path, have in sums.items():
        want = expected.get(path, have)
        if have != want and (want.crcs is not None or have.size != want.size):
            raise CheckpointDamaged(
                f"checkpoint {uuid}: {path} is damaged: its checksum differs from when it was stored"
            )


def _entry(s: Checksum) -> Dict[str, Any]:
    return {"size": s.size} if s.crcs is None else {"size": s.size, "crc32": [f"{crc:08x}" for crc in s.crcs]}


def encoded(sums: Checksums, owner: Optional[Owner] = None) -> bytes:
    """The content of a manifest."""
    content: Dict[str, Any] = {"version": 1, "block": BLOCK}
    if owner is not None:
        content["owner"] = owner.to_json()
    content["files"] = {path: _entry(s) for path, s in sorted(sums.items())}
    return json.dumps({**content, _SUM: _sum(content)}).encode()


def decoded(uuid: str, text: bytes) -> Checksums:
    """What a manifest says. Raises CheckpointDamaged, and CheckpointError for one of a later release."""
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        content: Any = json.loads(text.decode(), object_pairs_hook=_once_each, parse_constant=_no_number)
        if _SUM in content and content.pop(_SUM) != _sum(content):
            raise ValueError("its checksum is another")
        if int(content["version"]) != 1:
            raise CheckpointError(f"checkpoint {uuid}: its manifest is of a version that this dethpc does not know")
        if content["block"] != BLOCK:
            raise ValueError(content["block"])
        sums = {path: _checksum(entry, path.endswith("/")) for path, entry in content["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointDamaged(f"checkpoint {uuid}: its manifest is damaged: {error!r:.200}") from None
    check_paths(uuid, sums)
    if wrong := next((path for path in sums if path.startswith(NAME) or any(a in sums for a in _above(path))), ""):
        raise CheckpointDamaged(
            f"checkpoint {uuid}: its manifest is damaged: {wrong!r:.200} is in a file, or is itself"
        )
    return sums


def _checksum(entry: Any, is_folder: bool) -> Checksum:
    size, crcs = entry["size"], entry.get(_SUM)
    if type(size) is not int or not 0 <= size < 1 << 63 or (is_folder and size):
        raise ValueError(f"{size!r:.40} bytes")
    if _SUM not in entry:
        return Checksum(size, None)
    if not isinstance(crcs, list) or len(crcs) != -(-size // BLOCK):
        raise ValueError(f"{crcs!r:.40} for a file of {size} bytes")
    values = tuple(int(crc, 16) for crc in crcs)
    if not all(0 <= crc < 1 << 32 for crc in values):
        raise ValueError(f"{crcs!r:.40} is no CRC-32")
    return Checksum(size, values)


def _once_each(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is in it twice")
    return members


def _no_number(constant: str) -> Any:
    raise ValueError(constant)


def _above(path: str) -> Iterator[str]:
    """The folders that a path is in, without the "/" at their ends."""
    at = path.find("/")
    while 0 < at < len(path) - 1:
        yield path[:at]
        at = path.find("/", at + 1)


def check_paths(uuid: str, paths: Iterable[str]) -> None:
    """Raises CheckpointDamaged for a path that no file of a checkpoint can have: whoever may write to the storage would choose what
    is written elsewhere, by this program or by who unpacks its archives."""
    for path in paths:
        parts = path[:-1].split("/") if path.endswith("/") else path.split("/")
        if "\0" in path or not {"", ".", ".."}.isdisjoint(parts) or not _fits(path, parts):
            raise CheckpointDamaged(f"checkpoint {uuid}: no file of a checkpoint can be called {path!r:.200}")


def _fits(path: str, parts: List[str]) -> bool:
    """Whether a file system can have it: half of a surrogate pair is a byte that is no UTF-8, or nothing."""
    try:
        if len(path) <= _LONGEST_PART and path.isascii():
            return True
        return len(os.fsencode(path)) < _LONGEST and all(len(os.fsencode(part)) <= _LONGEST_PART for part in parts)
    except UnicodeEncodeError:
        return False


def _read(root: Path, name: str) -> Optional[Checksums]:
    try:
        with Tree(root) as tree, tree.read(name) as file:
            size = os.fstat(file.fileno()).st_size
            return decoded(root.name, file.read(min(size, _MOST_BYTES + 1)))
    except FileNotFoundError:
        return None
    except (IsADirectoryError, LeadsOut) as error:
        raise CheckpointDamaged(f"checkpoint {root.name}: its manifest is damaged: {error!r}") from None


def _sum(content: Dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content).encode()):08x}"


def listing(root: Path) -> Dict[str, int]:
    """Path -> bytes of everything below ``root``, as Determined lists resources: directories end in "/" and have 0 bytes."""
    with Tree(root) as tree:
        return listed(tree)


def listed(tree: Tree) -> Dict[str, int]:
    """As ``listing``."""
    sizes = {path: 0 if path.endswith("/") else status.st_size for path, status in tree.walk()}
    return {path: size for path, size in sizes.items() if "/" in path or not path.startswith(NAME)}


def files_of(resources: Iterable[str]) -> List[str]:
    return [path for path in resources if not path.endswith("/")]


def combine(first: int, second: int, length: int) -> int:
    """CRC-32 of two stretches of bytes after one another, from that of each; ``length``: bytes of the second.

    The first is shifted by that many zero bytes: multiplied by x^(8 * length) modulo CRC-32's polynomial over GF(2), as zlib's
    ``crc32_combine`` does.
    """
    power, square, bits = 1 << 31, 1 << 30, 8 * length  # x^0 and x^1; bits are reflected
    while bits:
        if bits & 1:
            power = _times(square, power)
        square = _times(square, square)
        bits >>= 1
    return _times(power, first) ^ second


def _times(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (0xEDB88320 if b & 1 else 0)
    return product


def _crc(tree: Tree, path: str, begin: int) -> int:
    buffer = memoryview(bytearray(_CHUNK))
    value, remaining = 0, _PART
    with tree.read(path) as file:
        file.seek(begin)
        while remaining:
            n = file.readinto(buffer[: min(remaining, _CHUNK)])
            if not n:
                break
            value = zlib.crc32(buffer[:n], value)
            remaining -= n
    return value


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores)
