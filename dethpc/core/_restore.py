"""Getting at a stored checkpoint: each worker for itself, or once for all workers of a machine."""

from __future__ import annotations

import contextlib
import enum
import zlib
from pathlib import Path
from typing import Iterator, Optional, Set

from dethpc.core._distributed import DistributedContext
from dethpc.core._together import together
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


def _choosing(wanted: Optional[Set[str]]) -> Optional[Selector]:
    return None if wanted is None else wanted.__contains__
