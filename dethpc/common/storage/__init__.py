"""``determined.common.storage``: storage managers, for code outside of the cluster.

They wrap dethpc's stores in Determined's interface, so a core context takes one: ``DummyCheckpointContext(distributed, manager)``.
A checkpoint becomes visible whole or not at all.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Sequence, Set

from dethpc import storage
from dethpc.errors import ConfigError, Problem
from dethpc.storage.base import CheckpointStore, PathLike, Selector
from dethpc.storage.files import FileStore
from dethpc.storage.objects import ObjectStore
from dethpc.storage.ownership import Claim

__all__ = [
    "AzureStorageManager",
    "CloudStorageManager",
    "DirectoryStorageManager",
    "GCSStorageManager",
    "HDFSStorageManager",
    "S3StorageManager",
    "SharedFSStorageManager",
    "StorageManager",
    "build",
    "from_string",
    "validate_config",
    "validate_manager",
]


class StorageManager(CheckpointStore):
    """Determined's calls for a store, in which each checkpoint has its name (``src``, ``dst``, ``tgt``).

    Raises CheckpointNotFound, CheckpointError and OSError as ``CheckpointStore`` does.
    """

    @classmethod
    def from_config(cls, config: Dict[str, Any], container_path: Optional[str] = None) -> StorageManager:
        """The manager of a ``checkpoint_storage`` section without its ``type``. Raises ConfigError."""
        raise NotImplementedError(f"{cls.__name__} is of no kind of storage")

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
        super().download(src, dst, selector)  # type: ignore[safe-super]

    def delete(self, tgt: str, globs: Sequence[str] = ("**/*",), *, claim: Optional[Claim] = None) -> Dict[str, int]:
        """Delete the files that match, and return what is left."""
        return super().delete(tgt, globs, claim=claim)  # type: ignore[safe-super]


class SharedFSStorageManager(StorageManager, FileStore):
    """Of a folder that all machines share."""

    def __init__(self, base_path: str) -> None:
        super().__init__(base_path)
        self._base_path = base_path

    @classmethod
    def from_config(cls, config: Dict[str, Any], container_path: Optional[str] = None) -> StorageManager:
        return cls(str(storage.build({"type": "shared_fs", **config}, container_path=container_path)))


class DirectoryStorageManager(SharedFSStorageManager):
    """Of a folder by the path that training sees."""

    @classmethod
    def from_config(cls, config: Dict[str, Any], container_path: Optional[str] = None) -> StorageManager:
        return cls(str(storage.build({"type": "directory", **config}, container_path=container_path)))


class CloudStorageManager(StorageManager, ObjectStore):
    """Of a store of objects: checkpoints are written here and brought there."""

    _type = ""

    def __init__(self, temp_dir: Optional[str] = None, **section: Any) -> None:
        given = {name: value for name, value in section.items() if value is not None}
        super().__init__(storage.driver_of({"type": self._type, **given}), disk=temp_dir)

    @classmethod
    def from_config(cls, config: Dict[str, Any], container_path: Optional[str] = None) -> StorageManager:
        return cls(**config)

    def store_path_is_direct_access(self) -> bool:
        return False


class S3StorageManager(CloudStorageManager):
    _type = "s3"

    def __init__(
        self,
        bucket: str,
        access_key: Optional[str] = None,
        secret_key: Optional[str] = None,
        endpoint_url: Optional[str] = None,
        prefix: Optional[str] = None,
        temp_dir: Optional[str] = None,
        path_style: Optional[bool] = None,
    ) -> None:
        super().__init__(
            temp_dir,
            bucket=bucket,
            access_key=access_key,
            secret_key=secret_key,
            endpoint_url=endpoint_url,
            prefix=prefix,
            path_style=path_style,
        )


class GCSStorageManager(CloudStorageManager):
    _type = "gcs"

    def __init__(self, bucket: str, prefix: Optional[str] = None, temp_dir: Optional[str] = None) -> None:
        super().__init__(temp_dir, bucket=bucket, prefix=prefix)


class AzureStorageManager(CloudStorageManager):
    _type = "azure"

    def __init__(
        self,
        container: str,
        connection_string: Optional[str] = None,
        account_url: Optional[str] = None,
        credential: Optional[str] = None,
        temp_dir: Optional[str] = None,
    ) -> None:
        super().__init__(
            temp_dir,
            container=container,
            connection_string=connection_string,
            account_url=account_url,
            credential=credential,
        )


class HDFSStorageManager(CloudStorageManager):
    _type = "hdfs"

    def __init__(
        self, hdfs_url: str, hdfs_path: str, user: Optional[str] = None, temp_dir: Optional[str] = None
    ) -> None:
        super().__init__(temp_dir, hdfs_url=hdfs_url, hdfs_path=hdfs_path, user=user)


_KINDS: Dict[str, type[StorageManager]] = {
    "azure": AzureStorageManager,
    "directory": DirectoryStorageManager,
    "gcs": GCSStorageManager,
    "hdfs": HDFSStorageManager,
    "s3": S3StorageManager,
    "shared_fs": SharedFSStorageManager,
}


def build(config: Dict[str, Any], container_path: Optional[str]) -> StorageManager:
    """The manager of a ``checkpoint_storage`` section. Raises ConfigError."""
    if not isinstance(config, dict):
        raise ConfigError([Problem.of_value("checkpoint_storage", repr(config), "a mapping with a type")])
    storage.build(config, container_path=container_path)  # says what is wrong with it
    own = {name: value for name, value in config.items() if name not in storage.ABOUT_OTHERS}
    return _KINDS[config["type"]].from_config(own, container_path)


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
