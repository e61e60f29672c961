"""Checkpoints as directories of a file system that every machine sees.

A checkpoint is written to a directory of its name in a hidden one, brought to disk and renamed into place. Its files are summed
before that, or right afterwards where somebody waits for it. A writer that dies leaves a ``.<uuid>.partial`` behind, which nobody
mistakes for a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from dethpc.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound
from dethpc.rundir.filesystem import FULL
from dethpc.rundir.tree import Tree, remove
from dethpc.storage import globs as globs_
from dethpc.storage import links, manifest
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
from dethpc.storage.ownership import Claim, Identity, Owner

_AT_ONCE = 1 << 20  # bytes of files that are summed before they are published in any case

_ROOM = 1 << 20  # bytes that a store which is not full takes

_HIDDEN = re.compile(r"\.(.+)\.(?:partial|deleted)\Z")


class _Folder:
    """The folder of all checkpoints: what a name means there."""

    def __init__(self, folder: PathLike, read_from: Sequence[PathLike] = ()) -> None:
        self._folder = Path(folder)
        self._read_from = [Path(path) for path in read_from]

    def __str__(self) -> str:
        return str(self._folder)

    def _path(self, uuid: str) -> Path:
        return self._folder / check_name(uuid)

    def _staging(self, uuid: str) -> Path:
        return self._path(uuid).with_name(f".{uuid}.partial")

    def _staged(self, uuid: str) -> Path:
        """Training code may look for the checkpoint's name in the path that it saves to."""
        return self._staging(uuid) / uuid

    def _locate(self, uuid: str) -> Path:
        """Where the checkpoint is, here or in a folder that is read from; else where it would be."""
        path = self._path(uuid)
        if not self._read_from or _is_folder(path):
            return path
        there = (folder / uuid for folder in self._read_from)
        return next((candidate for candidate in there if _is_folder(candidate)), path)

    def _existing(self, uuid: str) -> Path:
        path = self._locate(uuid)
        if os.path.islink(path):
            raise CheckpointError(f"checkpoint {uuid} is a link in {self}, and links are not followed there")
        if not _is_folder(path):
            if not _is_folder(self._folder):
                why = f", for {self} does not exist; is it mounted, and is checkpoint_storage right?"
                raise CheckpointNotFound(f"checkpoint {uuid} is not in {self}{why}")
            raise CheckpointNotFound(f"checkpoint {uuid} is not in {self}")
        return path

    def _there_already(self, uuid: str) -> CheckpointError:
        return CheckpointError(f"checkpoint {uuid} exists already in {self}")

    def _gone(self, uuid: str) -> Path:
        return self._path(uuid).with_name(f".{uuid}.deleted")


class FileStore(_Folder, CheckpointStore):
    """The store for ``shared_fs`` and ``directory``. All machines stage in the same directory.

    ``folder`` is created when first written to. What is not there is read from the folders ``read_from``, where nothing is ever
    written or deleted. With ``verify`` a checkpoint is read once before it is handed out; its pages are
    then in memory for the reader that follows.
    """

    # --- writing --------------------------------------------------------------------------------------------------------

    def stage(self, uuid: str) -> Path:
        if os.path.lexists(self._path(uuid)):
            raise self._there_already(uuid)
        staged = self._staged(uuid)
        try:
            staged.mkdir(parents=True, exist_ok=True)
            Tree(staged).close()
        except OSError as error:
            raise CheckpointError(f"checkpoints cannot be written to {self}: {error.strerror}") from error
        return staged

    def add(self, uuid: str, source: PathLike, paths: Optional[Sequence[str]] = None) -> manifest.Checksums:
        source, staged = folder_to_add(source), self._staged(uuid)
        with full_disk_named(self):
            sums = _copy(source, staged, manifest.listing(source) if paths is None else paths)
            self.flush(uuid, list(sums))
        return sums

    def flush(self, uuid: str, paths: Sequence[str]) -> manifest.Checksums:
        with Tree(self._staged(uuid)) as tree:
            sizes = {path: tree.status(path).st_size for path in paths}
            with manifest.Flushing(tree, len(sizes), sum(sizes.values())) as flushing:
                flushing.add(paths)
        return {path: manifest.Checksum(size, None) for path, size in sizes.items()}

    def publish(
        self,
        uuid: str,
        safe: Optional[manifest.Checksums] = None,
        files: Optional[Dict[str, int]] = None,
        *,
        defer_checksums: bool = False,
        owner: Optional[Owner] = None,
    ) -> Dict[str, int]:
        """For ``files``: a network file system may show each machine only its own new files for some seconds."""
        staged, final = self._staged(uuid), self._path(uuid)
        if os.path.lexists(final):
            raise self._there_already(uuid)
        # Waiting for the disk is what takes long: where there is much, it is asked to take everything at once.
        with full_disk_named(self), Tree(staged) as tree:
            listed = manifest.listed(tree) if files is None else files
            names = manifest.files_of(listed)
            sums = {path: safe[path] for path in names if path in safe} if safe else {}
            unsafe = [path for path in names if path not in sums]
            unsummed = {path: listed[path] for path in names if path not in sums or sums[path].crcs is None}
            with manifest.Flushing(tree, len(unsafe), sum(listed[path] for path in unsafe)) as flushing:
                flushing.add(unsafe)
                if defer_checksums and sum(unsummed.values()) > _AT_ONCE:
                    sums.update({path: manifest.Checksum(size, None) for path, size in unsummed.items()})
                else:
                    sums.update(manifest.measure(staged, list(unsummed)))
                manifest.put(tree, sums, owner=owner or self.owner)
                flushing.add([manifest.NAME, *(path for path in listed if path.endswith("/")), "."])
        try:
            if os.path.lexists(final):
                raise FileExistsError
            os.rename(staged, final)
        except OSError as error:
            if os.path.lexists(final):
                raise self._there_already(uuid) from None
            raise CheckpointError(f"checkpoint {uuid} cannot be published: {error.strerror}") from error
        with contextlib.suppress(OSError):  # on NFS a file that someone has open is still there
            os.rmdir(self._staging(uuid))
        with Tree(os.path.realpath(self._folder)) as tree:
            tree.sync(".")
        return listed

    def full(self) -> str:
        """Found out by writing: what a quota leaves is told nowhere else, and some file systems say it only when they flush."""
        import tempfile

        try:
            there = next(path for path in (self._folder, *self._folder.parents) if path.exists())
            with tempfile.TemporaryFile(dir=there) as file:
                file.write(bytes(_ROOM))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"{self}: {error.strerror}" if error.errno in FULL else ""
        return ""

    def discard(self, uuid: str) -> None:
        _remove(self._staging(uuid))
        _remove(self._gone(uuid))

    def without_checksums(self, uuid: str) -> List[str]:
        return [path for path, s in (manifest.load(self._existing(uuid)) or {}).items() if s.crcs is None]

    def add_checksums(self, uuid: str, paths: Sequence[str], part: int = 0) -> None:
        final = self._existing(uuid)
        if final == self._path(uuid):
            manifest.write(final, manifest.measure(final, paths, threads=1), part=part)

    def share(self, uuid: str, earlier: str, paths: Sequence[str]) -> int:
        self._existing(uuid)
        if not _is_folder(self._path(earlier)) or self._cluster(uuid) != self._cluster(earlier):
            return 0  # sharing takes the right to write to the earlier one's files away
        return links.share(self._folder, uuid, earlier, paths)

    # --- reading --------------------------------------------------------------------------------------------------------

    def exists(self, uuid: str) -> bool:
        return is_name(uuid) and _is_folder(self._locate(uuid))

    @contextlib.contextmanager
    def restore(
        self, uuid: str, selector: Optional[Selector] = None, *, verify: Optional[Selector] = None
    ) -> Iterator[Path]:
        """The checkpoint's directory itself: do not write to it."""
        final = self._existing(uuid)
        sums = manifest.load(final) if self.verify else None
        if sums is not None:
            chosen = [choose for choose in (selector, verify) if choose is not None]
            manifest.verify(final, {path: s for path, s in sums.items() if all(choose(path) for choose in chosen)})
        yield final

    def download(self, uuid: str, target: PathLike, selector: Optional[Selector] = None) -> None:
        final = self._existing(uuid)
        expected = (manifest.load(final) if self.verify else None) or {}
        manifest.check_sizes(final, {path: s for path, s in expected.items() if selector is None or selector(path)})
        paths = [path for path in self.files(uuid) if selector is None or selector(path)]
        Path(target).mkdir(parents=True, exist_ok=True)
        with full_disk_named(target):
            sums = _copy(final, Path(os.path.realpath(target)), paths)
        manifest.compare(uuid, expected, sums)

    def read(self, uuid: str, selector: Optional[Selector] = None) -> Iterator[Content]:
        final = self._existing(uuid)
        sums = manifest.load(final)
        sizes = {path: size for path, size in self.files(uuid).items() if selector is None or selector(path)}
        listed = {path: s for path, s in (sums or {}).items() if selector is None or selector(path)}
        unlisted = {path: manifest.Checksum(sizes[path], None) for path in manifest.files_of(sizes)}
        expected = {**unlisted, **listed}
        manifest.check_sizes(final, expected)
        with Tree(final) as tree:
            for path in sorted(sizes):
                if path.endswith("/"):
                    yield Content(path, 0, iter(()))
                    continue
                want = expected[path] if self.verify else manifest.Checksum(expected[path].size, None)
                with tree.read(path) as file:
                    pieces = iter(lambda: file.read(_AT_ONCE), b"")  # noqa: B023
                    yield Content(path, want.size, manifest.checked(uuid, path, want, pieces))

    def files(self, uuid: str) -> Dict[str, int]:
        return manifest.listing(self._existing(uuid))

    def metadata(self, uuid: str) -> Dict[str, Any]:
        import json

        try:
            with Tree(self._existing(uuid)) as tree, tree.read("metadata.json") as file:
                metadata = json.loads(file.read())
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError) as error:
            raise CheckpointDamaged(f"checkpoint {uuid}: metadata.json is damaged: {error}") from None
        return metadata if isinstance(metadata, dict) else {}

    def is_there(self) -> bool:
        return _is_folder(self._folder)

    def names(self) -> Iterator[Held]:
        """What has neither manifest nor metadata is no checkpoint: beside them, the folder has others', also what this user may
        not look into."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return
        for name in names:
            hidden = _HIDDEN.match(name)
            uuid, path = hidden[1] if hidden else name, self._folder / name
            if not is_name(uuid) or os.path.islink(path) or not path.is_dir():
                continue
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if hidden or any((path / sign).is_file() for sign in (manifest.NAME, "metadata.json")):
                    with Tree(path) as tree:
                        states = [os.stat(path), *(state for _, state in tree.walk())]
                    size = sum(state.st_size for state in states if stat.S_ISREG(state.st_mode))
                    yield Held(uuid, not hidden, size, max(state.st_mtime for state in states))

    # --- deleting -------------------------------------------------------------------------------------------------------

    def _cluster(self, uuid: str) -> str:
        owner = self.identity(uuid).owner
        return owner.cluster if owner is not None else ""

    def identity(self, uuid: str) -> Identity:
        """A link is none: it leads to what somebody keeps elsewhere."""
        check_name(uuid)
        final = self._locate(uuid)
        if final.is_symlink():
            return Identity(True)
        if not _is_folder(final):
            return Identity(False)
        with Tree(final) as tree:
            owner = manifest.owner_in(tree)
            signs = (manifest.NAME, "metadata.json")
            if owner is not None or any(os.path.isfile(final / sign) for sign in signs):
                return Identity(True, True, owner)
            return Identity(True, is_empty=not manifest.files_of(path for path, _ in tree.walk()))

    def delete(self, uuid: str, globs: Sequence[str] = ("**/*",), *, claim: Optional[Claim] = None) -> Dict[str, int]:
        final = self._path(uuid)
        if claim is not None:
            self.check_claim(uuid, claim)
        if not final.is_dir() or final.is_symlink():
            if "**/*" in globs:
                _remove(self._gone(uuid))  # what somebody has left who ended on the way
            return {}
        if "**/*" in globs:
            self._vanish(uuid)
            return {}
        with Tree(final) as tree:
            for path in globs_.matching(manifest.listing(final), globs):
                tree.remove(path)
        remaining = manifest.listing(final)
        if not remaining:
            self._vanish(uuid)
            return {}
        with contextlib.suppress(CheckpointError):  # a manifest that cannot be read stays as it is
            if (sums := manifest.load(final)) is not None:
                manifest.write(final, {path: s for path, s in sums.items() if path in remaining})
        return remaining

    def surviving(self, uuid: str, globs: Sequence[str]) -> Dict[str, int]:
        return globs_.surviving(manifest.listing(self._existing(uuid)), globs)

    # --- what is no checkpoint ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def synced_folder(self, folder: str) -> Iterator[Path]:
        """The folder itself."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with Tree(os.path.realpath(self._folder)) as tree:
            tree.make(folder)
        yield self._folder / folder

    def mirror(self, folder: str, target: PathLike) -> None:
        with contextlib.suppress(FileExistsError):
            os.symlink(self._folder / folder, target)

    def remove_folder(self, folder: str) -> None:
        if self._folder.is_dir():
            with Tree(os.path.realpath(self._folder)) as tree:
                tree.remove(folder)

    @contextlib.contextmanager
    def mark(self) -> Iterator[str]:
        import tempfile

        there = next(path for path in (self._folder, *self._folder.parents) if path.exists())  # it is made when needed
        try:
            mark = tempfile.mkdtemp(prefix=".doctor-", dir=there)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(there)) from None
        try:
            yield mark
        finally:
            _remove(Path(mark))

    def find_mark(self, mark: str) -> None:
        with open(Path(mark, "found"), "w") as file:
            file.write("found")
            os.fsync(file.fileno())

    def _vanish(self, uuid: str) -> None:
        """A reader sees the checkpoint whole until it sees none: the name goes first."""
        gone = self._gone(uuid)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path(uuid), gone)
        _remove(gone)


def _is_folder(path: Path) -> bool:
    """Unlike ``is_dir``: raises OSError where nobody can say, such as for a file server that does not answer."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _copy(source: Path, target: Path, paths: Union[Sequence[str], Dict[str, int]]) -> manifest.Checksums:
    sums: manifest.Checksums = {}
    with Tree(source) as here, Tree(target) as there:
        for path in paths:
            if path.endswith("/"):
                there.make(path)
                continue
            with here.read(path) as old, there.write(path) as new:
                sums[path] = manifest.copy(old, new)
                new.flush()
                status = os.fstat(old.fileno())
                os.fchmod(new.fileno(), status.st_mode & 0o777 | stat.S_IWUSR)  # a copy is the user's to change
                os.utime(new.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    return sums


def _remove(path: Path) -> None:
    """Remove a tree. On NFS a file that someone has open stays as ``.nfs*`` for a while."""
    for pause in (0.0, 0.1, 0.5):
        time.sleep(pause)
        remove(path)
        if not os.path.lexists(path):
            return
