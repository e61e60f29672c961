"""Checkpoints as directories of a file system that every node sees.

A checkpoint is written to a hidden sibling directory, brought to disk and renamed into place, so that a reader sees it whole or
not at all. Its files are summed before that, or right afterwards where somebody waits for it. A writer that dies leaves a
``.<uuid>.partial`` behind, which nobody mistakes for a checkpoint and ``clean`` removes.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterator, List, Optional, Sequence, Set, Union

from dethpc.errors import CheckpointError
from dethpc.storage import manifest

Selector = Callable[[str], bool]
"""Takes a path inside the checkpoint (directories end in "/") and says whether it is wanted."""

_AT_ONCE = 1 << 20  # bytes of files that are summed before they are published in any case

_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*\Z")


class FileStorage:
    """Implements the CheckpointStorage port for ``shared_fs`` and ``directory``.

    ``base`` is created when first written to. ``verify``: compare checksums before a checkpoint is handed out, which reads it
    once (its pages are then in memory for the reader that follows).
    """

    def __init__(self, base: Union[str, os.PathLike[str]], *, verify: bool = True) -> None:
        self.base = Path(base)
        self.verify = verify

    # --- storing --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def store_path(self, uuid: str) -> Iterator[Path]:
        """A directory to write into, published when the block ends well and removed when it does not."""
        staged = self.stage(uuid)
        try:
            yield staged
            self.publish(uuid)
        except BaseException:
            self.discard(uuid)
            raise

    def upload(
        self, src: Union[str, os.PathLike[str]], uuid: str, paths: Optional[Sequence[str]] = None
    ) -> Dict[str, int]:
        """Publish a copy of ``src`` (only ``paths`` of it, if given) as the checkpoint; returns path -> bytes."""
        self.stage(uuid)
        try:
            return self.publish(uuid, self.copy_in(src, uuid, paths))
        except BaseException:
            self.discard(uuid)
            raise

    def stage(self, uuid: str) -> Path:
        """The directory in which the checkpoint is being written; the same for every process that writes to it."""
        if os.path.lexists(self._path(uuid)):
            raise CheckpointError(f"checkpoint {uuid} exists already in {self.base}")
        staged = self._staged(uuid)
        try:
            staged.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"checkpoints cannot be written to {self.base}: {error.strerror}") from error
        return staged

    def copy_in(
        self, src: Union[str, os.PathLike[str]], uuid: str, paths: Optional[Sequence[str]] = None
    ) -> manifest.Sums:
        """Copy files of ``src`` into the staged checkpoint, to disk. Processes may do so at once, with different files."""
        source, staged = Path(src), self._staged(uuid)
        if not source.is_dir():
            raise CheckpointError(f"{source} is not a directory")
        sums = _copy(source, staged, manifest.listing(source) if paths is None else paths)
        self.flush(uuid, list(sums))
        return sums

    def flush(self, uuid: str, paths: Sequence[str]) -> None:
        """Bring files of the staged checkpoint to disk. Processes that write it together share the work."""
        with manifest.Flushing() as flushing:
            flushing.add(self._staged(uuid), paths)

    def publish(
        self,
        uuid: str,
        sums: Optional[manifest.Sums] = None,
        resources: Optional[Dict[str, int]] = None,
        *,
        flushed: Collection[str] = (),
        sum_later: bool = False,
    ) -> Dict[str, int]:
        """Make the staged checkpoint visible, on disk, and return its resources.

        ``sums``: of files that need not be read nor flushed; ``flushed``: others that need not be flushed. ``resources`` is for
        several nodes that have written: a network file system may show each only its own new files for some seconds, together
        they know all. ``sum_later``: what is large gets its checksums by ``complete``, of what ``unsummed`` says.
        """
        staged, final = self._staged(uuid), self._path(uuid)
        resources = manifest.listing(staged) if resources is None else resources
        known = dict(sums or {})
        files = manifest.files_of(resources)
        unknown = [path for path in files if path not in known]
        # Waiting for the disk is what takes long: it is asked to take everything at once, and is waited for at the end.
        sum_later = sum_later and sum(resources[path] for path in unknown) > _AT_ONCE
        if sum_later:
            known.update({path: manifest.Sum(resources[path], None) for path in unknown})
            manifest.write(staged, {path: known[path] for path in files}, sync=False)
        with manifest.Flushing() as flushing:
            flushing.add(staged, [path for path in unknown if path not in flushed])
            if not sum_later:
                known.update(manifest.measure(staged, unknown))
                manifest.write(staged, {path: known[path] for path in files}, sync=False)
            flushing.add(staged, [manifest.NAME, *(path for path in resources if path.endswith("/")), "."])
        try:
            if os.path.lexists(final):
                raise FileExistsError
            os.rename(staged, final)
        except OSError as error:
            if os.path.lexists(final):
                raise CheckpointError(f"checkpoint {uuid} exists already in {self.base}") from None
            raise CheckpointError(f"checkpoint {uuid} cannot be published: {error.strerror}") from error
        manifest.sync_path(self.base)
        return resources

    def unsummed(self, uuid: str) -> List[str]:
        """Files of a published checkpoint that have no checksums yet."""
        return [path for path, s in (manifest.load(self._existing(uuid)) or {}).items() if s.crcs is None]

    def complete(self, uuid: str, paths: Sequence[str], part: int = 0) -> None:
        """Sum files of a published checkpoint, by one core. Processes that do so at once have a ``part`` each. Raises OSError."""
        final = self._existing(uuid)
        manifest.write(final, manifest.measure(final, paths, threads=1), part=part)

    def discard(self, uuid: str) -> None:
        """Forget a staged checkpoint. Does nothing when there is none."""
        _remove(self._staged(uuid))

    # --- restoring ------------------------------------------------------------------------------------------------------

    def exists(self, uuid: str) -> bool:
        """Whether there is such a checkpoint, published whole. A name that no checkpoint can have has none."""
        return _UUID.match(uuid) is not None and os.path.isdir(self._path(uuid))

    @contextlib.contextmanager
    def restore_path(self, uuid: str, selector: Optional[Selector] = None) -> Iterator[Path]:
        """The checkpoint's directory itself, verified; do not write to it. With ``selector`` only what it wants is verified."""
        final = self._existing(uuid)
        sums = manifest.load(final) if self.verify else None
        if sums is not None:
            manifest.verify(final, {path: s for path, s in sums.items() if selector is None or selector(path)})
        yield final

    def download(self, uuid: str, dst: Union[str, os.PathLike[str]], selector: Optional[Selector] = None) -> None:
        """Copy the checkpoint to ``dst``, which is created; checksums are compared on the way."""
        final = self._existing(uuid)
        expected = manifest.load(final) or {}
        wanted = [path for path in self.resources(uuid) if selector is None or selector(path)]
        for path in expected:
            if path not in wanted and not (final / path).exists() and (selector is None or selector(path)):
                raise CheckpointError(f"checkpoint {uuid}: {path} is missing")
        Path(dst).mkdir(parents=True, exist_ok=True)
        found = _copy(final, Path(dst), wanted)
        if self.verify:
            manifest.compare(uuid, expected, found)

    def resources(self, uuid: str) -> Dict[str, int]:
        return manifest.listing(self._existing(uuid))

    def metadata(self, uuid: str) -> Dict[str, Any]:
        """What ``metadata.json`` in the checkpoint says; empty without one."""
        import json

        try:
            found = json.loads((self._existing(uuid) / "metadata.json").read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise CheckpointError(f"checkpoint {uuid}: metadata.json is damaged: {error}") from None
        return found if isinstance(found, dict) else {}

    # --- deleting -------------------------------------------------------------------------------------------------------

    def delete(self, uuid: str, globs: Sequence[str] = ("**/*",)) -> Dict[str, int]:
        """Delete what matches and return what is left. A checkpoint that is not there is deleted already."""
        final = self._path(uuid)
        if not final.is_dir():
            return {}
        if "**/*" in globs:
            self._vanish(uuid)
            return {}
        for path in _matching(final, globs):
            if path.is_dir() and not path.is_symlink():
                _remove(path)
            else:
                path.unlink(missing_ok=True)
        left = manifest.listing(final)
        if not left:
            self._vanish(uuid)
            return {}
        sums = manifest.load(final)
        if sums is not None:
            manifest.write(final, {path: s for path, s in sums.items() if path in left})
        return left

    def surviving(self, uuid: str, globs: Sequence[str]) -> Dict[str, int]:
        """What ``delete`` would leave. Deletes nothing."""
        final = self._existing(uuid)
        gone = {path.relative_to(final).as_posix() for path in _matching(final, globs)}

        def stays(path: str) -> bool:
            parts = path.rstrip("/").split("/")
            return not any("/".join(parts[:n]) in gone for n in range(1, len(parts) + 1))

        return {path: size for path, size in manifest.listing(final).items() if stays(path)}

    def clean(self, older_than: float) -> int:
        """Remove what dead writers left more than ``older_than`` seconds ago; returns how many."""
        removed = 0
        for path in list(self.base.glob(".*.partial")) + list(self.base.glob(".*.deleted")):
            with contextlib.suppress(OSError):
                newest = max(entry.stat().st_mtime for entry in [path, *path.rglob("*")])
                if time.time() - newest > older_than:
                    _remove(path)
                    removed += 1
        return removed

    # --- names ----------------------------------------------------------------------------------------------------------

    def _path(self, uuid: str) -> Path:
        if not _UUID.match(uuid):
            raise CheckpointError(f"not the name of a checkpoint: {uuid!r}")
        return self.base / uuid

    def _staged(self, uuid: str) -> Path:
        return self._path(uuid).with_name(f".{uuid}.partial")

    def _existing(self, uuid: str) -> Path:
        path = self._path(uuid)
        if not path.is_dir():
            why = "" if self.base.is_dir() else f", for {self.base} does not exist; is checkpoint_storage right?"
            raise CheckpointError(f"checkpoint {uuid} is not in {self.base}{why}")
        return path

    def _vanish(self, uuid: str) -> None:
        """A reader sees the checkpoint whole until it sees none: the name goes first."""
        gone = self._path(uuid).with_name(f".{uuid}.deleted")
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path(uuid), gone)
        _remove(gone)


def _copy(source: Path, target: Path, paths: Union[Sequence[str], Dict[str, int]]) -> manifest.Sums:
    import shutil

    sums: manifest.Sums = {}
    made: Set[Path] = set()
    for path in paths:
        to = target / path
        parent = to if path.endswith("/") else to.parent
        if parent not in made:
            parent.mkdir(parents=True, exist_ok=True)
            made.add(parent)
        if not path.endswith("/"):
            sums[path] = manifest.copy(source / path, to)
            shutil.copystat(source / path, to)
    return sums


def _matching(root: Path, globs: Sequence[str]) -> Iterator[Path]:
    import glob

    inside = os.path.normpath(root)
    for pattern in globs:
        for name in glob.glob(f"{glob.escape(inside)}/{pattern}", recursive=True):
            path = os.path.normpath(name)
            if path != inside and os.path.commonpath([inside, path]) == inside:
                yield Path(path)


def _remove(path: Path) -> None:
    """Remove a tree. On NFS a file that someone has open stays as ``.nfs*`` for a while: left to ``clean``."""
    import shutil

    for pause in (0.0, 0.1, 0.5):
        time.sleep(pause)
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
