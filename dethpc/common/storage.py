"""``determined.common.storage``: storage managers, which code outside of the cluster makes itself.

They are our stores with Determined's calls, so a core context takes one: ``DummyCheckpointContext(distributed, manager)``. As
every checkpoint here, one is seen whole or not at all. A ``checkpoint_storage`` of another type is refused as a configuration is.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Set

from dethpc import storage
from dethpc.errors import ConfigError, Problem
from dethpc.storage.base import PathLike, Selector
from dethpc.storage.files import FileStore

__all__ = [
    "DirectoryStorageManager",
    "SharedFSStorageManager",
    "StorageManager",
    "build",
    "from_string",
    "validate_config",
    "validate_manager",
]


class StorageManager(FileStore):
    """Checkpoints in a folder, each by its name (``src``, ``dst``, ``tgt``).

    Raises CheckpointNotFound, CheckpointError and OSError as ``CheckpointStore`` does.
    """

    def __init__(self, base_path: str) -> None:
        super().__init__(base_path)
        self._base_path = base_path

    @classmethod
    def from_config(cls, config: Dict[str, Any], container_path: Optional[str] = None) -> StorageManager:
        """The manager of a ``checkpoint_storage`` section without its ``type``. Raises ConfigError."""
        raise NotImplementedError(f"{cls.__name__} is made with the path of a folder")

    def store_path_is_direct_access(self) -> bool:
        """Whether what is written goes where checkpoints are, and is not copied there."""
        return True

    def pre_store_path(self, dst: str) -> Path:
        """A directory to write a checkpoint into, for ``post_store_path`` to publish."""
        return self.stage(dst)

    def post_store_path(self, src: PathLike, dst: str, paths: Optional[Set[str]] = None) -> None:
        """Publish what was written into ``src``, which ``pre_store_path`` gave; all of it, whatever ``paths`` says."""
        self.publish(dst)

    @contextlib.contextmanager
    def store_path(self, dst: str) -> Iterator[Path]:
        """A directory to write a checkpoint into; it is published when the block ends without an exception."""
        path = self.pre_store_path(dst)
        try:
            yield path
        except BaseException:
            self.discard(dst)
            raise
        self.post_store_path(path, dst)

    def upload(self, src: PathLike, dst: str, paths: Optional[Set[str]] = None) -> None:
        """Store a copy of the directory ``src``, or ``paths`` of it."""
        self.stage(dst)
        self.publish(dst, self.add(dst, src, None if paths is None else sorted(paths)))

    def restore_path(self, src: str, selector: Optional[Selector] = None) -> contextlib.AbstractContextManager[Path]:
        """A directory that holds the checkpoint inside the block, for reading."""
        return self.restore(src, selector)

    def download(self, src: str, dst: PathLike, selector: Optional[Selector] = None) -> None:
        """Copy the checkpoint, or what ``selector`` wants of it, to the directory ``dst``, which is created."""
        super().download(src, dst, selector)

    def delete(self, tgt: str, globs: Sequence[str] = ("**/*",)) -> Dict[str, int]:
        """Delete the files that match, and return what is left."""
        return super().delete(tgt, globs)


class SharedFSStorageManager(StorageManager):
    """Of a folder that all machines share."""

    @classmethod
    def from_config(cls, config: Dict[str, Any], container_path: Optional[str] = None) -> StorageManager:
        return _manager(cls, {"type": "shared_fs", **config}, container_path)


class DirectoryStorageManager(SharedFSStorageManager):
    """Of a folder by the path that training sees."""

    @classmethod
    def from_config(cls, config: Dict[str, Any], container_path: Optional[str] = None) -> StorageManager:
        return _manager(cls, {"type": "directory", **config}, container_path)


_KINDS = {"shared_fs": SharedFSStorageManager, "directory": DirectoryStorageManager}


def _manager(kind: type[StorageManager], section: Mapping[str, Any], container_path: Optional[str]) -> StorageManager:
    return kind(str(storage.build(section, container_path=container_path)))


def build(config: Dict[str, Any], container_path: Optional[str]) -> StorageManager:
    """The manager of a ``checkpoint_storage`` section. Raises ConfigError; NotSupportedYet for object stores."""
    if not isinstance(config, dict):
        raise ConfigError([Problem("checkpoint_storage", repr(config), "a mapping with a type")])
    return _manager(_KINDS.get(config.get("type", ""), StorageManager), config, container_path)


def from_string(shortcut: str) -> StorageManager:
    """The manager for a path or a URL. Raises as ``build`` does."""
    return build(storage.section(shortcut), None)


def validate_config(config: Dict[str, Any], container_path: Optional[str]) -> None:
    """``validate_manager`` for the manager of a ``checkpoint_storage`` section."""
    validate_manager(build(config, container_path))


def validate_manager(manager: StorageManager) -> None:
    """Store, read and delete a small checkpoint. Raises OSError, CheckpointError with what cannot be done."""
    name = str(uuid.uuid4())
    with manager.store_path(name) as path:
        (path / "VALIDATE.txt").write_text(name)
    try:
        with manager.restore_path(name) as path:
            (path / "VALIDATE.txt").read_text()
    finally:
        manager.delete(name)
