"""A checkpoint store that is no folder: one database for all machines, and each machine stages on its own disk.

It is here to show that nobody relies on paths below a store, and what a store for objects has to do. ``install`` puts it in the
place of type ``s3``: ``bucket`` is the database's file, which stands for a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
import zlib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from dethpc import storage
from dethpc.errors import CheckpointDamaged, CheckpointError
from dethpc.storage.base import CheckpointStore, Content, Held, PathLike, Selector
from dethpc.storage.manifest import Checksum, Checksums, files_of, listing
from dethpc.storage.ownership import Claim, Identity, Owner, from_json
from tests.waiting import LONG_ENOUGH

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (place TEXT, name TEXT, content BLOB, crc INTEGER, PRIMARY KEY (place, name));
CREATE TABLE IF NOT EXISTS checkpoints (uuid TEXT PRIMARY KEY, files TEXT, owner TEXT);
"""


class RemoteStore(CheckpointStore):
    """``disk``: this machine's own, which no other machine sees."""

    def __init__(self, server: str, disk: str) -> None:
        self.server, self.disk = server, disk
        with self._talk() as server_:
            server_.executescript(_SCHEMA)

    def __str__(self) -> str:
        return f"remote:{self.server}"

    # --- writing --------------------------------------------------------------------------------------------------------

    def stage(self, uuid: str) -> Path:
        if self._listed(uuid) is not None:
            raise CheckpointError(f"checkpoint {uuid} exists already in {self}")
        self._staged(uuid).mkdir(parents=True, exist_ok=True)
        return self._staged(uuid)

    def add(self, uuid: str, source: PathLike, paths: Optional[Sequence[str]] = None) -> Checksums:
        if not os.path.isdir(source):
            raise CheckpointError(f"{source} is not a directory")
        chosen = list(listing(Path(source))) if paths is None else paths
        for path in chosen:
            target = self._staged(uuid) / path
            (target if path.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
            if not path.endswith("/"):
                shutil.copyfile(Path(source, path), target)
        return self.flush(uuid, files_of(chosen))

    def flush(self, uuid: str, paths: Sequence[str]) -> Checksums:
        return self._send(uuid, self._staged(uuid), paths)

    def publish(
        self,
        uuid: str,
        safe: Optional[Checksums] = None,
        files: Optional[Dict[str, int]] = None,
        *,
        defer_checksums: bool = False,
        owner: Optional[Owner] = None,
    ) -> Dict[str, int]:
        staged, safe = self._staged(uuid), safe or {}
        listed = listing(staged) if files is None else files
        missing = [path for path in files_of(listed) if path not in safe]
        with self._talk() as server:
            try:
                named = owner or self.owner
                row = (uuid, json.dumps(listed), json.dumps(named and named.to_json()))
                server.execute("INSERT INTO checkpoints VALUES (?, ?, ?)", row)
            except sqlite3.IntegrityError:
                raise CheckpointError(f"checkpoint {uuid} exists already in {self}") from None
            self._insert(server, uuid, staged, missing)
            found = {name for (name,) in server.execute("SELECT name FROM objects WHERE place = ?", (uuid,))}
            if set(files_of(listed)) - found:
                raise CheckpointError(f"checkpoint {uuid}: {sorted(set(files_of(listed)) - found)} never arrived")
        self.leave(uuid)
        return listed

    def discard(self, uuid: str) -> None:
        self.leave(uuid)
        with self._talk() as server:
            if not server.execute("SELECT 1 FROM checkpoints WHERE uuid = ?", (uuid,)).fetchone():
                server.execute("DELETE FROM objects WHERE place = ?", (uuid,))

    def leave(self, uuid: str) -> None:
        shutil.rmtree(self._staged(uuid), ignore_errors=True)

    def without_checksums(self, uuid: str) -> List[str]:
        self._existing(uuid)
        return []  # what is sent is summed on the way

    def add_checksums(self, uuid: str, paths: Sequence[str], part: int = 0) -> None:
        self._existing(uuid)

    # --- reading --------------------------------------------------------------------------------------------------------

    def exists(self, uuid: str) -> bool:
        with contextlib.suppress(CheckpointError):
            return self._listed(uuid) is not None
        return False

    @contextlib.contextmanager
    def restore(
        self, uuid: str, selector: Optional[Selector] = None, *, verify: Optional[Selector] = None
    ) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._own_disk()) as folder:
            self.download(uuid, folder, selector)
            yield Path(folder)

    def download(self, uuid: str, target: PathLike, selector: Optional[Selector] = None) -> None:
        wanted = [path for path in self._existing(uuid) if selector is None or selector(path)]
        Path(target).mkdir(parents=True, exist_ok=True)
        with self._talk() as server:
            for path in wanted:
                to = Path(target, path)
                (to if path.endswith("/") else to.parent).mkdir(parents=True, exist_ok=True)
                if not path.endswith("/"):
                    content, crc = self._fetch(server, uuid, path)
                    if zlib.crc32(content) != crc:
                        raise CheckpointDamaged(f"checkpoint {uuid}: {path} is damaged")
                    to.write_bytes(content)

    def read(self, uuid: str, selector: Optional[Selector] = None) -> Iterator[Content]:
        sizes = self._existing(uuid)
        for path in sorted(path for path in sizes if selector is None or selector(path)):
            if path.endswith("/"):
                yield Content(path, 0, iter(()))
                continue
            with self._talk() as server:
                content, crc = self._fetch(server, uuid, path)
            yield Content(path, len(content), self._compared(uuid, path, content, crc))

    def _compared(self, uuid: str, path: str, content: bytes, crc: int) -> Iterator[bytes]:
        yield content
        if zlib.crc32(content) != crc:
            raise CheckpointDamaged(f"checkpoint {uuid}: {path} is damaged")

    def files(self, uuid: str) -> Dict[str, int]:
        return self._existing(uuid)

    def metadata(self, uuid: str) -> Dict[str, Any]:
        if "metadata.json" not in self._existing(uuid):
            return {}
        with self._talk() as server:
            content, _ = self._fetch(server, uuid, "metadata.json")
        try:
            found: Dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise CheckpointDamaged(f"checkpoint {uuid}: metadata.json is damaged: {error}") from None
        return found

    def names(self) -> Iterator[Held]:
        with self._talk() as server:
            whole = {uuid for (uuid,) in server.execute("SELECT uuid FROM checkpoints")}
            sizes = server.execute("SELECT place, sum(length(content)) FROM objects GROUP BY place").fetchall()
        for place, size in sizes:
            if place != "marks" and not place.startswith("beside/"):
                yield Held(place, place in whole, size, os.stat(self.server).st_mtime)

    # --- deleting -------------------------------------------------------------------------------------------------------

    def identity(self, uuid: str) -> Identity:
        with self._talk() as server:
            found = server.execute("SELECT owner FROM checkpoints WHERE uuid = ?", (uuid,)).fetchone()
        return Identity(False) if found is None else Identity(True, True, from_json(json.loads(found[0])))

    def delete(self, uuid: str, globs: Sequence[str] = ("**/*",), *, claim: Optional[Claim] = None) -> Dict[str, int]:
        if claim is not None:
            self.check_claim(uuid, claim)
        if self._listed(uuid) is None:
            return {}
        left = self.surviving(uuid, globs)
        with self._talk() as server:
            for path in set(self._existing(uuid)) - set(left):
                server.execute("DELETE FROM objects WHERE place = ? AND name = ?", (uuid, path))
            if left:
                server.execute("UPDATE checkpoints SET files = ? WHERE uuid = ?", (json.dumps(left), uuid))
            else:
                server.execute("DELETE FROM checkpoints WHERE uuid = ?", (uuid,))
        return left

    def surviving(self, uuid: str, globs: Sequence[str]) -> Dict[str, int]:
        def goes(path: str) -> bool:
            parts = path.rstrip("/").split("/")
            above = [parts[:n] for n in range(1, len(parts) + 1)]
            return any(_matches(some, glob.split("/")) for some in above for glob in globs)

        return {path: size for path, size in self._existing(uuid).items() if not goes(path)}

    # --- what is no checkpoint ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def synced_folder(self, folder: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._own_disk()) as local:
            yield Path(local)
            self._send(f"beside/{folder}", Path(local), files_of(listing(Path(local))))

    def mirror(self, folder: str, target: PathLike) -> None:
        for name, content in self.beside_of(folder).items():
            path = Path(target, name)
            if not name.endswith("/") and not (path.exists() and path.stat().st_size == len(content)):
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "r+b" if path.exists() else "wb") as file:
                    file.write(content)
                    file.truncate()
        Path(target).mkdir(parents=True, exist_ok=True)

    def remove_folder(self, folder: str) -> None:
        with self._talk() as server:
            server.execute("DELETE FROM objects WHERE place = ?", (f"beside/{folder}",))

    @contextlib.contextmanager
    def mark(self) -> Iterator[str]:
        with self._talk() as server:
            server.execute("INSERT INTO objects VALUES ('marks', 'm', '', 0)")
        try:
            yield "m"
        finally:
            with self._talk() as server:
                server.execute("DELETE FROM objects WHERE place = 'marks'")

    def find_mark(self, mark: str) -> None:
        with self._talk() as server:
            if not server.execute("SELECT 1 FROM objects WHERE place = 'marks' AND name = ?", (mark,)).fetchone():
                raise FileNotFoundError(mark)

    # --- the server -----------------------------------------------------------------------------------------------------

    def beside_of(self, folder: str) -> Dict[str, bytes]:
        """For tests: what is there."""
        with self._talk() as server:
            rows = server.execute("SELECT name, content FROM objects WHERE place = ?", (f"beside/{folder}",))
            return dict(rows.fetchall())

    def damage(self, uuid: str, path: str) -> None:
        """For tests: turn a bit over."""
        with self._talk() as server:
            content, _ = self._fetch(server, uuid, path)
            content = bytes([content[0] ^ 1]) + content[1:]
            server.execute("UPDATE objects SET content = ? WHERE place = ? AND name = ?", (content, uuid, path))

    @contextlib.contextmanager
    def _talk(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.server, timeout=LONG_ENOUGH)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def _send(self, place: str, root: Path, paths: Sequence[str]) -> Checksums:
        with self._talk() as server:
            return self._insert(server, place, root, paths)

    def _insert(self, server: sqlite3.Connection, place: str, root: Path, paths: Sequence[str]) -> Checksums:
        sums = {}
        for path in paths:
            content = (root / path).read_bytes()
            sums[path] = Checksum(len(content), (zlib.crc32(content),))
            server.execute("REPLACE INTO objects VALUES (?, ?, ?, ?)", (place, path, content, zlib.crc32(content)))
        return sums

    def _fetch(self, server: sqlite3.Connection, uuid: str, path: str) -> Any:
        found = server.execute("SELECT content, crc FROM objects WHERE place = ? AND name = ?", (uuid, path)).fetchone()
        if found is None:
            raise CheckpointDamaged(f"checkpoint {uuid}: {path} is missing")
        return found

    def _listed(self, uuid: str) -> Optional[Dict[str, int]]:
        _check(uuid)
        with self._talk() as server:
            found = server.execute("SELECT files FROM checkpoints WHERE uuid = ?", (uuid,)).fetchone()
        return None if found is None else json.loads(found[0])

    def _existing(self, uuid: str) -> Dict[str, int]:
        if (found := self._listed(uuid)) is None:
            raise CheckpointError(f"checkpoint {uuid} is not in {self}")
        return found

    def _staged(self, uuid: str) -> Path:
        _check(uuid)
        return self._own_disk() / "staged" / uuid

    def _own_disk(self) -> Path:
        Path(self.disk).mkdir(parents=True, exist_ok=True)
        return Path(self.disk)


def install() -> None:
    """Build this store for sections of type ``s3``. A process's machine is its ``GROUP_RANK``."""
    disk = f"{tempfile.gettempdir()}/disk-of-machine-{os.environ.get('GROUP_RANK', '0')}"
    storage.KINDS["s3"] = storage.Kind(("bucket",), lambda section, *_: RemoteStore(section["bucket"], disk))


def _check(uuid: str) -> None:
    if not uuid.replace("-", "").isalnum() or uuid.strip() != uuid:
        raise CheckpointError(f"not the name of a checkpoint: {uuid!r}")


def _matches(path: Sequence[str], glob: Sequence[str]) -> bool:
    if not glob:
        return not path
    if glob[0] == "**":
        return any(_matches(path[n:], glob[1:]) for n in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], glob[0]) and _matches(path[1:], glob[1:])
