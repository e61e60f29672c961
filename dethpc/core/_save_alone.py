"""A checkpoint that the chief saves without the other workers."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from dethpc.core._saving import Finishing, new_id, selected, write_metadata
from dethpc.storage import CheckpointStore
from dethpc.storage.base import PathLike, Selector


class SaveAlone:
    """See ``CheckpointContext.store_path`` and ``upload`` with ``shard=False``."""

    def __init__(self, store: CheckpointStore, finishing: Finishing) -> None:
        self._store, self._finishing = store, finishing

    @contextlib.contextmanager
    def store_path(self, metadata: Optional[Dict[str, Any]], beside: bool) -> Iterator[Tuple[Path, str]]:
        started = time.monotonic()
        storage_id = new_id()
        path = self._store.stage(storage_id)
        try:
            yield path, storage_id
            plain = self._finishing.checked(metadata)
            write_metadata(path, plain)
        except BaseException:
            self._store.discard(storage_id)
            raise

        def publish() -> List[str]:
            try:
                files = self._store.publish(storage_id, defer_checksums=True)
            except BaseException:
                self._store.discard(storage_id)
                raise
            self._finishing.report(storage_id, files, plain, started)
            return self._store.without_checksums(storage_id)

        self._finishing.finish(publish, storage_id, beside)

    def upload(
        self, source: Optional[PathLike], metadata: Optional[Dict[str, Any]], selector: Optional[Selector]
    ) -> str:
        if source is None:
            raise RuntimeError("upload(ckpt_dir=None, shard=False) would store nothing")
        started = time.monotonic()
        plain = self._finishing.checked(metadata)
        storage_id = new_id()
        source = os.path.realpath(source)
        paths = selected(Path(source), selector)
        try:
            staged = self._store.stage(storage_id)
            safe = self._store.add(storage_id, source, list(paths))
            write_metadata(staged, plain)
            files = self._store.publish(storage_id, safe)
        except BaseException:
            self._store.discard(storage_id)
            raise
        self._finishing.report(storage_id, files, plain, started)
        return storage_id
