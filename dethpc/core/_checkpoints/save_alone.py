"""A checkpoint that the chief saves without the other workers."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from dethpc.core._checkpoints.outbox import Outbox, Waiting
from dethpc.core._checkpoints.saving import METADATA, Finishing, Part, Write, large_of, new_id, selected, write_metadata
from dethpc.rundir.tree import Tree
from dethpc.storage import CheckpointStore
from dethpc.storage.base import PathLike, Selector
from dethpc.storage.manifest import listing

_AT_ONCE = 1 << 20  # bytes that are copied at once


class SaveAlone:
    """See ``CheckpointContext.store_path`` and ``upload`` with ``shard=False``."""

    def __init__(self, store: CheckpointStore, finishing: Finishing, outbox: Outbox) -> None:
        self._store, self._finishing, self._outbox = store, finishing, outbox

    @contextlib.contextmanager
    def store_path(
        self, metadata: Optional[Dict[str, Any]], write: Optional[Write], in_background: bool
    ) -> Iterator[Tuple[Path, str]]:
        started = time.monotonic()
        storage_id = new_id()
        path = self._stage(storage_id)
        with self._discarded_if_failing(storage_id):
            yield path, storage_id
            plain = self._finishing.checked(metadata)
        self._finishing.finish(
            lambda: self._publish(storage_id, path, write, plain, started), storage_id, in_background
        )

    def store_async(self, write: Write, metadata: Optional[Dict[str, Any]]) -> str:
        started = time.monotonic()
        plain = self._finishing.checked(metadata)
        storage_id = new_id()

        def publish() -> Part:  # the training waits for no disk and no server
            return self._publish(storage_id, self._stage(storage_id), write, plain, started)

        self._finishing.finish(publish, storage_id, in_background=True)
        return storage_id

    def _publish(
        self, storage_id: str, path: Path, write: Optional[Write], plain: Dict[str, Any], started: float
    ) -> Part:
        with self._discarded_if_failing(storage_id):
            if write is not None:
                write(path)
            write_metadata(path, plain)
            files = listing(path) if self._store.may_be_away else {}
            return self._bring(Waiting(storage_id, files, plain, self._store, self._finishing, path, started))

    def _bring(self, staged: Waiting) -> Part:
        if not self._outbox.bring(staged, staged.report_waiting):
            return Part([], [])
        return Part(self._finishing.unsummed(staged.uuid), large_of(staged.files, staged.files))

    @contextlib.contextmanager
    def _discarded_if_failing(self, storage_id: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._finishing.tell_if_full(error)
            self._store.discard(storage_id)
            raise

    def _stage(self, storage_id: str) -> Path:
        with self._finishing.full_storage_told():
            return self._store.stage(storage_id)

    def upload(
        self,
        source: Optional[PathLike],
        metadata: Optional[Dict[str, Any]],
        selector: Optional[Selector],
        in_background: bool,
    ) -> str:
        if source is None:
            raise RuntimeError("upload(ckpt_dir=None) would store nothing")
        started = time.monotonic()
        plain = self._finishing.checked(metadata)
        storage_id = new_id()
        folder = Path(os.path.realpath(source))
        paths = selected(folder, selector)

        def publish() -> Part:
            with self._discarded_if_failing(storage_id):
                staged = self._stage(storage_id)
                files = {**paths, METADATA: write_metadata(staged, plain)}
                rest = (files, plain, self._store, self._finishing, staged, started)
                return self._bring(_Elsewhere(folder, list(paths), storage_id, *rest))

        self._finishing.finish(publish, storage_id, in_background)
        return storage_id


class _Elsewhere(Waiting):
    """A checkpoint whose files are in a folder of somebody else's, and go up from there, unless they have to wait."""

    def __init__(self, folder: Path, paths: List[str], *rest: Any) -> None:
        super().__init__(*rest)
        self._folder, self._paths = folder, paths

    def _bring(self) -> Dict[str, int]:
        safe = self._store.add(self.uuid, self._folder, self._paths)
        return self._store.publish(self.uuid, safe)

    def stay(self) -> None:
        import shutil  # its archive formats are a good part of an import of core

        assert self._path is not None  # where it is staged
        with Tree(self._folder) as here, Tree(self._path) as there:
            for path in self._paths:
                if path.endswith("/"):
                    there.make(path)
                    continue
                with here.read(path) as old, there.write(path) as new:
                    shutil.copyfileobj(old, new, _AT_ONCE)
        self._folder, self._paths = self._path, []
