"""Getting at a stored checkpoint: each worker for itself, or once for all workers of a machine."""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
import zlib
from pathlib import Path
from typing import Iterator, Optional, Set

from dethpc.core._distributed import DistributedContext
from dethpc.core._together import together
from dethpc.errors import CheckpointNotFound
from dethpc.storage import CheckpointStore
from dethpc.storage.base import PathLike, Selector


class DownloadMode(enum.Enum):
    """``LocalWorkersShareDownload``: one copy per machine, and all workers must call in step. ``NoSharedDownload``: each worker
    for itself, whenever it wants."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class Restore:
    """See ``CheckpointContext.restore_path`` and ``download``."""

    def __init__(self, dist: DistributedContext, store: CheckpointStore) -> None:
        self._dist, self._store = dist, store

    @contextlib.contextmanager
    def restore_path(self, storage_id: str, mode: DownloadMode, selector: Optional[Selector]) -> Iterator[Path]:
        if DownloadMode(mode) is DownloadMode.NoSharedDownload:
            with self._store.restore(storage_id, selector) as path:
                yield path
            return
        wanted = _choosing(self._wanted_here(storage_id, selector))
        machines, here = self._dist.cross_size, self._dist.cross_rank

        def compare(path: str) -> bool:
            """Where every machine sees the same files they share the work."""
            return zlib.crc32(path.encode()) % machines == here

        with contextlib.ExitStack() as stack:

            def enter() -> Optional[Path]:
                if self._dist.local_rank != 0:
                    return None
                return stack.enter_context(self._store.restore(storage_id, wanted, verify=compare))

            path = self._dist.broadcast_local(together(self._dist, enter)[self._dist.rank])
            try:
                yield path
            finally:
                with contextlib.suppress(ConnectionError):
                    self._dist.gather_local(None)

    def download(self, storage_id: str, target: PathLike, mode: DownloadMode, selector: Optional[Selector]) -> None:
        if DownloadMode(mode) is DownloadMode.NoSharedDownload:
            self._store.download(storage_id, target, selector)
            return
        wanted = _choosing(self._wanted_here(storage_id, selector))

        def copy() -> None:
            if self._dist.local_rank == 0:
                self._store.download(storage_id, target, wanted)

        together(self._dist, copy)

    def _wanted_here(self, storage_id: str, selector: Optional[Selector]) -> Optional[Set[str]]:
        """The paths that any worker of this machine wants; None: all. Functions do not travel, so the names do."""
        if not any(self._dist.allgather(selector is not None)):
            return None
        names = together(self._dist, lambda: list(self._store.files(storage_id)))[0]
        choice = together(self._dist, lambda: [name for name in names if selector is None or selector(name)])
        machines = self._dist.allgather(self._dist.cross_rank)
        return {name for one, m in zip(choice, machines) if m == self._dist.cross_rank for name in one}


class RestoreOfPaths(Restore):
    """Outside the cluster a checkpoint may also be named by the directory that holds it: by a path with a separator in it."""

    @contextlib.contextmanager
    def restore_path(self, storage_id: str, mode: DownloadMode, selector: Optional[Selector]) -> Iterator[Path]:
        folder = folder_named(storage_id)
        if folder is not None:
            yield folder
            return
        with super().restore_path(storage_id, mode, selector) as path:
            yield path

    def download(self, storage_id: str, target: PathLike, mode: DownloadMode, selector: Optional[Selector]) -> None:
        folder = folder_named(storage_id)
        if folder is None:
            super().download(storage_id, target, mode, selector)
            return
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder).as_posix()
            if file.is_file() and (selector is None or selector(name)):
                copy = Path(target, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)


def folder_named(storage_id: PathLike) -> Optional[Path]:
    """The directory that ``storage_id`` is the path of; None for the name of a checkpoint. Raises CheckpointNotFound."""
    if os.sep not in os.fspath(storage_id):
        return None
    folder = Path(storage_id).absolute()
    if not folder.is_dir():
        raise CheckpointNotFound(f"{folder} is no directory, so no checkpoint is there")
    return folder


def _choosing(wanted: Optional[Set[str]]) -> Optional[Selector]:
    return None if wanted is None else wanted.__contains__
