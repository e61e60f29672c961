"""Reading of a stored checkpoint: by each worker for itself, or once for all workers of a machine."""

from __future__ import annotations

import contextlib
import enum
import os
import zlib
from pathlib import Path
from typing import Dict, Iterator, Optional, Set

from dethpc.core._collective import collectively
from dethpc.core._distributed import DistributedContext
from dethpc.errors import CheckpointNotFound
from dethpc.storage import CheckpointStore
from dethpc.storage.base import PathLike, Selector

MachinesByPath = Dict[str, Set[int]]


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
        machines_of = self._machines_by_path(storage_id, selector)
        compare = self._to_compare(machines_of)
        with contextlib.ExitStack() as stack:

            def enter() -> Optional[Path]:
                if self._dist.local_rank != 0:
                    return None
                return stack.enter_context(self._store.restore(storage_id, self._here(machines_of), verify=compare))

            path = self._dist.broadcast_local(collectively(self._dist, enter)[self._dist.rank])
            try:
                yield path
            finally:
                with contextlib.suppress(ConnectionError):
                    self._dist.gather_local(None)

    def download(self, storage_id: str, target: PathLike, mode: DownloadMode, selector: Optional[Selector]) -> None:
        if DownloadMode(mode) is DownloadMode.NoSharedDownload:
            self._store.download(storage_id, target, selector)
            return
        selected = self._here(self._machines_by_path(storage_id, selector))

        def copy() -> None:
            if self._dist.local_rank == 0:
                self._store.download(storage_id, target, selected)

        collectively(self._dist, copy)

    def _machines_by_path(self, storage_id: str, selector: Optional[Selector]) -> Optional[MachinesByPath]:
        """The paths that anybody wants, and the machines that do; None: all of them, everywhere. Functions do not travel, so the
        names do."""
        if not any(self._dist.allgather(selector is not None)):
            return None
        names = collectively(self._dist, lambda: list(self._store.files(storage_id)))[0]
        choice = collectively(self._dist, lambda: [name for name in names if selector is None or selector(name)])
        machines_of: MachinesByPath = {}
        for chosen, machine in zip(choice, self._dist.allgather(self._dist.cross_rank)):
            for name in chosen:
                machines_of.setdefault(name, set()).add(machine)
        return machines_of

    def _here(self, machines_of: Optional[MachinesByPath]) -> Optional[Selector]:
        """What any worker of this machine wants."""
        if machines_of is None:
            return None
        return {name for name, machines in machines_of.items() if self._dist.cross_rank in machines}.__contains__

    def _to_compare(self, machines_of: Optional[MachinesByPath]) -> Selector:
        """Where every machine sees the same files, those that want a file share the work."""
        everywhere = set(range(self._dist.cross_size))

        def compare(path: str) -> bool:
            machines = sorted(everywhere if machines_of is None else machines_of.get(path, everywhere))
            return machines[zlib.crc32(path.encode()) % len(machines)] == self._dist.cross_rank

        return compare


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
        import shutil  # its archive formats are a good part of an import of core

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
