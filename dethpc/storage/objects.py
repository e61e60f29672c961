"""Checkpoints in an object store: one implementation for all kinds, over ``Driver``.

Each file of a checkpoint is an object, ``<uuid>/<path>``, as in Determined. A checkpoint is there once its manifest is, which goes
up last, after all others have been counted. Until then ``.dethpc-partial`` says that somebody is bringing it, or died.

Every machine stages on its own disk. A store that does not answer while a checkpoint goes up is asked again for a while; then the
checkpoint stays staged until somebody tries again, and what has arrived is not sent again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from dethpc.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound
from dethpc.rundir.tree import Tree
from dethpc.storage import globs as globs_
from dethpc.storage import manifest, ownership
from dethpc.storage.base import (
    CheckpointStore,
    Content,
    Held,
    PathLike,
    Selector,
    check_name,
    folder_to_add,
    full_disk_named,
    is_name,
)
from dethpc.storage.driver import NO_PATIENCE, USUAL, Driver, StoreAway
from dethpc.storage.ownership import Claim, Identity, Owner
from dethpc.storage.staging import Staging
from dethpc.storage.transfer import fetch, send, update

logger = logging.getLogger("dethpc.storage")

PATIENCE = 60.0  # seconds for which a call waits that brings a checkpoint, when the store does not answer

_PARTIAL = ".dethpc-partial"
_DELETED = ".dethpc-deleted"
_SIGNS = (manifest.NAME, _PARTIAL, _DELETED)
_METADATA = "metadata.json"
_AT_ONCE = 8 << 20  # bytes of a file that are read at once; a block of its checksum is a whole number of them


class _Bucket:
    """What is in the store, by the names of checkpoints."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._has_taken = False

    def __str__(self) -> str:
        return self._driver.where

    def _manifest(self, uuid: str, *, patience: float = USUAL) -> Optional[bytes]:
        check_name(uuid)
        try:
            return self._driver.get(f"{uuid}/{manifest.NAME}", patience=patience)
        except FileNotFoundError:
            return None

    def _sums(self, uuid: str, *, patience: float = USUAL) -> Optional[manifest.Checksums]:
        """The checkpoint's files; None where there is none. Without a manifest it is Determined's, if it has metadata, which went
        up last there."""
        text = self._manifest(uuid, patience=patience)
        if text is not None:
            return manifest.decoded(uuid, text)
        objects = self._driver.list(uuid, patience=patience)
        if _METADATA not in objects or _PARTIAL in objects or _DELETED in objects:
            return None
        manifest.check_paths(uuid, objects)
        listed = _with_folders({path: state.size for path, state in objects.items()})
        return {path: manifest.Checksum(size, () if path.endswith("/") else None) for path, size in listed.items()}

    def _sizes(self, uuid: str) -> Optional[Dict[str, int]]:
        """The checkpoint's files; None where there is none. By what is there, where its manifest cannot be read."""
        check_name(uuid)
        try:
            sums = self._sums(uuid)
        except CheckpointError:
            objects = self._driver.list(uuid)
            return _with_folders({path: state.size for path, state in objects.items() if path not in _SIGNS})
        return None if sums is None else {path: s.size for path, s in sums.items()}

    def _existing(self, uuid: str) -> manifest.Checksums:
        if (sums := self._sums(uuid)) is None:
            raise CheckpointNotFound(f"checkpoint {uuid} is not in {self}")
        return sums

    def _leave_in_manifest(self, uuid: str, remaining: Mapping[str, int]) -> None:
        with contextlib.suppress(CheckpointError):  # one that cannot be read stays as it is
            sums = {path: s for path, s in self._existing(uuid).items() if path in remaining}
            owner = ownership.of_manifest(self._manifest(uuid) or b"")
            self._driver.replace(f"{uuid}/{manifest.NAME}", manifest.encoded(sums, owner))

    def _refuse_published(self, uuid: str, objects: Mapping[str, Any]) -> None:
        """``objects``: those that exist under this name."""
        whole = _METADATA in objects and _PARTIAL not in objects and _DELETED not in objects  # Determined's
        if manifest.NAME in objects or whole:
            raise CheckpointError(f"checkpoint {uuid} exists already in {self}")

    def _pieces(self, name: str, size: int) -> Iterator[bytes]:
        for start in range(0, size, _AT_ONCE):
            yield self._driver.get(name, start, min(start + _AT_ONCE, size))

    def _compare_sizes(self, uuid: str, sizes: Dict[str, int]) -> None:
        objects = self._driver.list(uuid)
        for path, size in sizes.items():
            if path not in objects:
                raise CheckpointDamaged(f"checkpoint {uuid}: {path} is missing")
            if objects[path].size != size:
                raise CheckpointDamaged(
                    f"checkpoint {uuid}: {path} has {objects[path].size} bytes, and had {size} when stored"
                )

    def _remove(self, uuid: str, objects: Dict[str, Any]) -> None:
        """All objects of a checkpoint, and last of all what says that it is none."""
        self._driver.remove([f"{uuid}/{path}" for path in objects if path not in _SIGNS])
        self._driver.remove([f"{uuid}/{sign}" for sign in _SIGNS if sign in objects])

    @contextlib.contextmanager
    def _away_if_it_refuses_now(self) -> Iterator[None]:
        """What has taken a checkpoint and refuses the next one will take it when somebody has mended its keys or rights."""
        try:
            yield
        except PermissionError as error:
            if not self._has_taken:
                raise
            raise StoreAway(error.errno, error.strerror) from error


class ObjectStore(_Bucket, CheckpointStore):
    """``disk``: a folder of this machine that all its processes of one job share, for staging; None: one in the temporary folder.
    ``patience``: seconds for which writing waits for a store that is away."""

    def __init__(self, driver: Driver, *, disk: Optional[PathLike] = None, patience: float = PATIENCE) -> None:
        super().__init__(driver)
        self._patience = patience
        self._staging = Staging(disk)
        self._arrived: Dict[str, manifest.Checksums] = {}  # of what is being brought; published is nothing of it yet
        self._lock = threading.Lock()

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_arrived": {}, "_lock": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    # --- writing --------------------------------------------------------------------------------------------------------

    def stage(self, uuid: str) -> Path:
        check_name(uuid)
        with contextlib.suppress(OSError):  # whoever publishes looks again
            self._refuse_published(uuid, self._driver.list(uuid, patience=NO_PATIENCE))
        staged = self._staged(uuid)
        try:
            staged.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"checkpoints cannot be staged in {staged.parent}: {error.strerror}") from error
        return staged

    def add(self, uuid: str, source: PathLike, paths: Optional[Sequence[str]] = None) -> manifest.Checksums:
        """The files go up from ``source`` itself: they are not staged."""
        source, staged = folder_to_add(source), self._staged(uuid)
        chosen = list(manifest.listing(source) if paths is None else paths)
        with Tree(staged) as tree:
            for path in chosen:
                if path.endswith("/"):
                    tree.make(path)
        with self._away_if_it_refuses_now():
            return self._send(uuid, source, manifest.files_of(chosen))

    def flush(self, uuid: str, paths: Sequence[str]) -> manifest.Checksums:
        with self._away_if_it_refuses_now():
            return self._send(uuid, self._staged(uuid), paths)

    def publish(
        self,
        uuid: str,
        safe: Optional[manifest.Checksums] = None,
        files: Optional[Dict[str, int]] = None,
        *,
        defer_checksums: bool = False,
        owner: Optional[Owner] = None,
    ) -> Dict[str, int]:
        check_name(uuid)
        sums = dict(safe or {})
        listed = files
        if listed is None:
            listed = _with_folders({**manifest.listing(self._staged(uuid)), **{p: s.size for p, s in sums.items()}})
        with self._away_if_it_refuses_now():
            sums.update(self._send(uuid, self._staged(uuid), [p for p in manifest.files_of(listed) if p not in sums]))
            whole = {path: manifest.Checksum(0, ()) if path.endswith("/") else sums[path] for path in listed}
            text = manifest.encoded(whole, owner or self.owner)
            self._count(uuid, whole, text)
            self._driver.replace(f"{uuid}/{manifest.NAME}", text, patience=self._patience)
        self._has_taken = True
        with contextlib.suppress(OSError):  # the manifest outweighs it
            self._driver.remove([f"{uuid}/{_PARTIAL}"], patience=NO_PATIENCE)
        self.leave(uuid)
        return listed

    @property
    def may_be_away(self) -> bool:
        return True

    def may_come_back(self, error: OSError) -> bool:
        return isinstance(error, StoreAway)

    def discard(self, uuid: str) -> None:
        """What cannot be removed because the store does not answer stays, as ``names`` says."""
        self.leave(uuid)
        try:
            if self._manifest(uuid, patience=NO_PATIENCE) is None:
                objects = self._driver.list(uuid, patience=NO_PATIENCE)
                if _PARTIAL in objects or _DELETED in objects:
                    self._remove(uuid, objects)
        except OSError as error:
            logger.warning("what was brought of checkpoint %s is still in the store: %s", uuid, error)

    def leave(self, uuid: str) -> None:
        check_name(uuid)
        self._staging.leave(uuid)
        with self._lock:
            self._arrived.pop(uuid, None)

    def without_checksums(self, uuid: str) -> List[str]:
        """What is sent is summed on its way."""
        self._existing(uuid)
        return []

    def add_checksums(self, uuid: str, paths: Sequence[str], part: int = 0) -> None:
        pass

    # --- reading --------------------------------------------------------------------------------------------------------

    def exists(self, uuid: str) -> bool:
        return is_name(uuid) and self._sizes(uuid) is not None

    @contextlib.contextmanager
    def restore(
        self, uuid: str, selector: Optional[Selector] = None, *, verify: Optional[Selector] = None
    ) -> Iterator[Path]:
        """A copy of what is wanted, which goes when the block ends."""
        sums = self._existing(uuid)
        with self._staging.temporary("restored") as folder:
            inside = Path(folder, uuid)
            inside.mkdir()
            self._fetch(uuid, sums, inside, selector)
            yield inside

    def download(self, uuid: str, target: PathLike, selector: Optional[Selector] = None) -> None:
        sums = self._existing(uuid)
        Path(target).mkdir(parents=True, exist_ok=True)
        self._fetch(uuid, sums, Path(os.path.realpath(target)), selector)

    def read(self, uuid: str, selector: Optional[Selector] = None) -> Iterator[Content]:
        sums = self._existing(uuid)
        paths = [path for path in sorted(sums) if selector is None or selector(path)]
        self._compare_sizes(uuid, {path: sums[path].size for path in manifest.files_of(paths)})
        for path in paths:
            want = sums[path] if self.verify else manifest.Checksum(sums[path].size, None)
            pieces = iter(()) if path.endswith("/") else self._pieces(f"{uuid}/{path}", want.size)
            yield Content(path, want.size, manifest.checked(uuid, path, want, pieces))

    def files(self, uuid: str) -> Dict[str, int]:
        return {path: s.size for path, s in self._existing(uuid).items()}

    def metadata(self, uuid: str) -> Dict[str, Any]:
        if _METADATA not in self._existing(uuid):
            return {}
        try:
            metadata = json.loads(self._driver.get(f"{uuid}/{_METADATA}"))
        except FileNotFoundError:
            raise CheckpointDamaged(f"checkpoint {uuid}: {_METADATA} is missing") from None
        except (ValueError, RecursionError) as error:
            raise CheckpointDamaged(f"checkpoint {uuid}: {_METADATA} is damaged: {error}") from None
        return metadata if isinstance(metadata, dict) else {}

    def names(self) -> Iterator[Held]:
        """Without its signs an object is beside the checkpoints; what Determined has stored has metadata."""
        held: Dict[str, List[Any]] = {}
        for path, state in self._driver.list().items():
            uuid, _, inside = path.partition("/")
            one = held.setdefault(uuid, [set(), 0, 0.0])
            if inside in (*_SIGNS, _METADATA):
                one[0].add(inside)
            one[1], one[2] = one[1] + state.size, max(one[2], state.changed)
        for uuid, (signs, size, changed) in held.items():
            if signs and is_name(uuid):
                yield Held(uuid, manifest.NAME in signs or signs == {_METADATA}, size, changed)

    # --- deleting -------------------------------------------------------------------------------------------------------

    def identity(self, uuid: str) -> Identity:
        """An interrupted deletion has removed the manifest: what is left of it names the owner in its place."""
        text = self._manifest(uuid)
        if text is not None:
            return Identity(True, True, ownership.of_manifest(text))
        objects = self._driver.list(uuid)
        if _DELETED in objects:
            return Identity(True, True, ownership.of_manifest(self._driver.get(f"{uuid}/{_DELETED}")))
        if _PARTIAL in objects:  # somebody is bringing it, or died
            return Identity(False)
        return Identity(bool(objects), _METADATA in objects)

    def delete(self, uuid: str, globs: Sequence[str] = ("**/*",), *, claim: Optional[Claim] = None) -> Dict[str, int]:
        """Of a whole checkpoint the manifest goes first: a reader sees it whole until it sees none."""
        if claim is not None:
            self.check_claim(uuid, claim)
        sizes = self._sizes(uuid)
        if sizes is None:
            if "**/*" in globs and _DELETED in (objects := self._driver.list(uuid)):
                self._remove(uuid, objects)  # what somebody has left who ended on the way
            return {}
        remaining = {} if "**/*" in globs else globs_.surviving(sizes, globs)
        if not remaining:
            owner = ownership.of_manifest(self._manifest(uuid) or b"")
            self._driver.put(f"{uuid}/{_DELETED}", b"" if owner is None else manifest.encoded({}, owner))
            self._driver.remove([f"{uuid}/{manifest.NAME}"])
            self._remove(uuid, self._driver.list(uuid))
            return {}
        self._leave_in_manifest(uuid, remaining)
        self._driver.remove([f"{uuid}/{path}" for path in manifest.files_of(sizes) if path not in remaining])
        return remaining

    def surviving(self, uuid: str, globs: Sequence[str]) -> Dict[str, int]:
        sizes = self._sizes(uuid)
        return globs_.surviving(self.files(uuid) if sizes is None else sizes, globs)

    # --- what is no checkpoint ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def synced_folder(self, folder: str) -> Iterator[Path]:
        """An empty directory, whose files go up when the block ends."""
        with self._staging.temporary("beside") as local:
            yield Path(local)
            send(self._driver, Path(local), folder, manifest.files_of(manifest.listing(Path(local))))

    def mirror(self, folder: str, target: PathLike) -> None:
        update(self._driver, folder, Path(target))

    def remove_folder(self, folder: str) -> None:
        self._driver.remove([f"{folder}/{name}" for name in self._driver.list(folder)])

    @contextlib.contextmanager
    def mark(self) -> Iterator[str]:
        mark = f".doctor-{os.urandom(8).hex()}"
        self._driver.put(f"{mark}/mark", b"mark")
        try:
            yield mark
        finally:
            with contextlib.suppress(OSError):
                self._driver.remove([f"{mark}/mark", f"{mark}/found"])

    def find_mark(self, mark: str) -> None:
        self._driver.get(f"{mark}/mark")
        self._driver.put(f"{mark}/found", b"found")

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _send(self, uuid: str, root: Path, paths: Sequence[str]) -> manifest.Checksums:
        if not paths:
            return {}
        for path in paths:
            # Bytes that are no UTF-8 among the former; drivers and servers alter control characters.
            if not path.isprintable() or set(path) & set(self._driver.alters):
                raise CheckpointError(f"checkpoint {uuid}: {self} takes no file called {path!a}: rename it")
        if uuid not in self._arrived:
            self._refuse_published(uuid, self._driver.list(uuid, patience=self._patience))
            self._driver.put(f"{uuid}/{_PARTIAL}", b"", patience=self._patience)
            with self._lock:
                self._arrived[uuid] = {}
        arrived = self._arrived[uuid]
        send(self._driver, root, uuid, paths, patience=self._patience, arrived=arrived)
        return {path: arrived[path] for path in paths}

    def _count(self, uuid: str, whole: manifest.Checksums, text: bytes) -> None:
        """Refuses a checkpoint that is published already, and one of which something has not arrived, or not all of it."""
        objects = self._driver.list(uuid, patience=self._patience)
        # The manifest may have arrived when nobody could say so.
        if manifest.NAME not in objects or self._manifest(uuid, patience=self._patience) != text:
            self._refuse_published(uuid, objects)
        for path in manifest.files_of(whole):
            size = objects[path].size if path in objects else None
            if size != whole[path].size:
                arrived = "it never arrived" if size is None else f"{size} of its {whole[path].size} bytes arrived"
                raise CheckpointError(f"checkpoint {uuid} cannot be published: {path}: {arrived}")

    def _fetch(self, uuid: str, sums: manifest.Checksums, target: Path, selector: Optional[Selector]) -> None:
        selected = {path: s for path, s in sums.items() if selector is None or selector(path)}
        self._compare_sizes(uuid, {path: selected[path].size for path in manifest.files_of(selected)})
        with full_disk_named(target):
            fetch(self._driver, uuid, selected, target, verify=self.verify)

    def _staged(self, uuid: str) -> Path:
        check_name(uuid)
        return self._staging.path(uuid)


def _with_folders(listed: Dict[str, int]) -> Dict[str, int]:
    """With an entry for each directory that a file is in."""
    above = {path[: at + 1] for path in listed for at, letter in enumerate(path) if letter == "/"}
    return {**dict.fromkeys(sorted(above), 0), **listed}
