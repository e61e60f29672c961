"""Transfers between a directory and an object store: concurrent, large files in parts, each part retried and checksummed."""

from __future__ import annotations

import os
import zlib
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from dethpc.errors import CheckpointDamaged
from dethpc.rundir.tree import Tree
from dethpc.storage.driver import USUAL, Driver, Parts
from dethpc.storage.manifest import BLOCK, Checksum, Checksums, measure, put_together

_AT_ONCE = 16  # parts that are on their way
_PART = 8 << 20  # bytes of a read; a block is a whole number of them
_SMALL = 16 << 20  # up to so many bytes a file goes in one piece, from memory
_READS = 3  # of a block whose checksum is another: what came may be damaged, and not what is there


def send(
    driver: Driver,
    root: Path,
    folder: str,
    paths: Sequence[str],
    *,
    patience: float = USUAL,
    arrived: Optional[Checksums] = None,
) -> Checksums:
    """Bring files below ``root`` to ``folder`` in the store. Raises OSError; ``arrived`` then holds what has arrived all the
    same, and is not sent again by a call that is given it."""
    sums: Checksums = {} if arrived is None else arrived
    crcs: Dict[str, List[int]] = {}
    part_of: Dict[str, int] = {}
    paths = [path for path in paths if path not in sums]
    if not paths:
        return sums
    with Tree(root) as tree:
        sizes = {path: tree.status(path).st_size for path in paths}
        upload = _Upload(driver, tree, root, folder, patience)

        def small(path: str) -> Checksum:
            sums[path] = checksum = upload.small(path)
            return checksum

        with _Calls() as calls:
            for path in paths:
                if sizes[path] <= _SMALL:
                    calls.add(path, small, path)
            for path in paths:
                if sizes[path] > _SMALL:
                    part = upload.large(calls, path, sizes[path])
                    if part and BLOCK % part == 0:
                        crcs[path], part_of[path] = [], part
                    else:
                        calls.add(path, lambda p: measure(root, [p], threads=1)[p], path)
            for key, checksum in calls.results():
                if isinstance(checksum, Checksum):
                    sums[key] = checksum
                elif key in crcs:
                    crcs[key].append(checksum)
        sums.update({path: put_together(sizes[path], crcs[path], part_of[path]) for path in crcs})
    return sums


class _Upload(NamedTuple):
    """Files below ``root``, opened as ``tree``, on their way to ``folder`` in the store."""

    driver: Driver
    tree: Tree
    root: Path
    folder: str
    patience: float

    def small(self, path: str) -> Checksum:
        with self.tree.read(path) as file:
            data = file.read()
        crc = zlib.crc32(data)
        self.driver.put(f"{self.folder}/{path}", data, crc=crc, patience=self.patience)
        return Checksum(len(data), (crc,) if data else ())

    def large(self, calls: _Calls, path: str, size: int) -> int:
        """The bytes of its parts, of which each call returns the CRC-32; 0 where it goes in one piece."""
        name, file = f"{self.folder}/{path}", os.path.join(self.root, path)
        parts = self.driver.parts(name, size, patience=self.patience)
        if parts is None:
            calls.add(path, lambda f: self.driver.put_file(name, f, patience=self.patience), file)
            return 0

        def part(n: int) -> int:
            with self.tree.read(path) as opened:
                opened.seek(n * parts.size)
                data = opened.read(parts.size)
            crc = zlib.crc32(data)
            parts.put(n, data, crc)
            return crc

        for n in range(-(-size // parts.size)):
            calls.add(path, part, n)
        calls.after(parts)
        return parts.size


def fetch(
    driver: Driver, uuid: str, sums: Checksums, target: Path, *, verify: bool = True, patience: float = USUAL
) -> None:
    """Bring a checkpoint's files to the directory ``target``, compared with their checksums where they have some. Raises
    CheckpointDamaged that names a missing or damaged file, and OSError."""
    with Tree(target) as tree:
        for path, expected in sums.items():
            if path.endswith("/"):
                tree.make(path)
            else:
                with tree.write(path) as file:
                    file.truncate(expected.size)

    download = _Download(driver, uuid, target, patience)

    def block(what: Tuple[str, int]) -> None:
        path, at = what
        expected = sums[path]
        want = expected.crcs[at // BLOCK] if verify and expected.crcs is not None else None
        for _ in range(_READS):
            crc = download.block(path, at, expected.size)
            if want is None or crc == want:
                return
        raise CheckpointDamaged(f"checkpoint {uuid}: {path} is damaged: its checksum differs from when it was stored")

    files = {path: sum_ for path, sum_ in sums.items() if not path.endswith("/")}
    with _Calls() as calls:
        for path, expected in files.items():
            for at in range(0, expected.size, BLOCK):
                calls.add(path, block, (path, at))
        calls.results()


def update(driver: Driver, folder: str, target: Path) -> None:
    """Copy to ``target`` what is new in ``folder`` of the store; what a file has grown by is added to it. Raises OSError."""
    sizes = {path: stat.size for path, stat in driver.list(folder).items() if not path.endswith("/")}
    target.mkdir(parents=True, exist_ok=True)
    with Tree(target) as tree, _Calls() as calls:

        def one(path: str) -> None:
            try:
                held = tree.status(path).st_size
            except FileNotFoundError:
                held = -1
            if held == sizes[path]:
                return
            held = held if 0 <= held < sizes[path] else 0
            with tree.append(path) as file:
                file.truncate(held)
                for start in range(held, sizes[path], _PART):
                    file.write(driver.get(f"{folder}/{path}", start, min(start + _PART, sizes[path])))

        for path in sizes:
            calls.add(path, one, path)
        calls.results()


class _Download(NamedTuple):
    """Files of a checkpoint on their way to ``target``, where they have their size already."""

    driver: Driver
    uuid: str
    target: Path
    patience: float

    def block(self, path: str, at: int, size: int) -> int:
        """Its CRC-32."""
        crc = 0
        file = os.open(os.path.join(self.target, path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for start in range(at, min(at + BLOCK, size), _PART):
                end = min(start + _PART, at + BLOCK, size)
                try:
                    data = self.driver.get(f"{self.uuid}/{path}", start, end, patience=self.patience)
                except FileNotFoundError:
                    raise CheckpointDamaged(f"checkpoint {self.uuid}: {path} is missing") from None
                except OSError:
                    self._refuse_other_size(path, size)
                    raise
                os.pwrite(file, data, start)
                crc = zlib.crc32(data, crc)
        finally:
            os.close(file)
        return crc

    def _refuse_other_size(self, path: str, size: int) -> None:
        """A store that gives too few bytes again and again has no more of them."""
        stat = self.driver.list(self.uuid).get(path)
        if stat is not None and stat.size != size:
            raise CheckpointDamaged(f"checkpoint {self.uuid}: {path} has {stat.size} bytes, and had {size} when stored")


class _Calls:
    """Calls in several threads until the block ends. The first that fails keeps those that have not begun from beginning."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, "dethpc-transfer")
        self._calls: List[Tuple[str, Future[Any]]] = []
        self._parts: List[Parts] = []

    def __enter__(self) -> _Calls:
        return self

    def __exit__(self, *exc: object) -> None:
        for _, call in self._calls:
            call.cancel()
        self._pool.shutdown()
        for parts in self._parts:
            parts.abandon()

    def add(self, key: str, call: Callable[[Any], Any], argument: Any) -> None:
        self._calls.append((key, self._pool.submit(call, argument)))

    def after(self, parts: Parts) -> None:
        """What is to be finished when all calls have ended well, and abandoned when one has not."""
        self._parts.append(parts)

    def results(self) -> List[Tuple[str, Any]]:
        """What all calls returned. Raises the first failure."""
        wait([call for _, call in self._calls], return_when=FIRST_EXCEPTION)
        failed = [call for _, call in self._calls if call.done() and not call.cancelled() and call.exception()]
        if failed:
            failed[0].result()
        results = [(key, call.result()) for key, call in self._calls]
        while self._parts:
            self._parts[-1].finish()
            self._parts.pop()
        return results
