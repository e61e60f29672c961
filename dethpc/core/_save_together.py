"""A checkpoint that all workers save together, each with files of its own."""

from __future__ import annotations

import contextlib
import copy
import os
import time
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, cast

from dethpc.core._distributed import DistributedContext, Group
from dethpc.core._encode import jsonable
from dethpc.core._merge import Conflicts, merge_metadata, merge_resources
from dethpc.core._saving import METADATA, Finishing, Part, Write, large_of, new_id, selected, write_metadata
from dethpc.core._together import together
from dethpc.storage import CheckpointStore
from dethpc.storage.base import PathLike, Selector
from dethpc.storage.manifest import Checksums, files_of, listing, measure


class Brought(NamedTuple):
    """What one worker brings: the files that it sees, those of them that are safe in the store, its metadata."""

    files: Dict[str, int]
    safe: Checksums
    metadata: Dict[str, Any]


class SaveTogether:
    """See ``CheckpointContext.store_path`` and ``upload`` with ``shard=True``. All workers make the same calls, in step."""

    def __init__(self, dist: DistributedContext, store: CheckpointStore, finishing: Finishing) -> None:
        self._dist, self._store, self._finishing = dist, store, finishing
        self._patiently = finishing.patiently
        self._beside: Optional[Group] = None  # of the workers, for what they do together in the background

    def close(self) -> None:
        if self._beside is not None:
            self._beside.close()

    @contextlib.contextmanager
    def store_path(
        self, metadata: Optional[Dict[str, Any]], write: Optional[Write], beside: bool
    ) -> Iterator[Tuple[Path, str]]:
        started = time.monotonic()
        storage_id, path = self._stage()
        group = self._group(beside)
        try:
            yield path, storage_id
        except BaseException as error:
            # The others wait for this worker: tell them that there will be no checkpoint.
            failure = RuntimeError(f"its block failed: {error!r}")
            with contextlib.suppress(ConnectionError, RuntimeError):
                together(group, lambda: _raise(failure))
            self._give_up(storage_id)
            raise
        if beside:
            metadata = copy.deepcopy(metadata)  # the training may go on to change it
        self._finish_written(storage_id, path, write or (lambda _: None), metadata, started, group, beside)

    def store_async(self, write: Write, metadata: Optional[Dict[str, Any]]) -> str:
        started = time.monotonic()
        storage_id, path = self._stage()
        group = self._group(beside=True)
        self._finish_written(storage_id, path, write, copy.deepcopy(metadata), started, group, beside=True)
        return storage_id

    def _finish_written(
        self,
        storage_id: str,
        path: Path,
        write: Write,
        metadata: Optional[Dict[str, Any]],
        started: float,
        group: Group,
        beside: bool,
    ) -> None:
        """Publish what ``write`` writes. Nobody looks at the files before all have written theirs: another worker's may still
        grow, or lose the name that it has while it is written."""

        def publish() -> Part:
            try:
                together(group, lambda: write(path))
            except BaseException:
                self._give_up(storage_id)
                raise
            return self._publish(storage_id, metadata, lambda: (listing(path), {}), started, group)

        self._finishing.finish(publish, storage_id, beside)

    def upload(
        self,
        ckpt_dir: Optional[PathLike],
        metadata: Optional[Dict[str, Any]],
        selector: Optional[Selector],
        beside: bool,
    ) -> str:
        started = time.monotonic()
        source = None if ckpt_dir is None else Path(os.path.realpath(ckpt_dir))
        if beside:
            metadata = copy.deepcopy(metadata)
        storage_id, _ = self._stage()
        group = self._group(beside)

        def publish() -> Part:
            try:
                mine = self._settle_conflicts(group, source, self._settle_directories(group, source, selector))
            except BaseException:
                self._give_up(storage_id)
                raise

            def add() -> Tuple[Dict[str, int], Checksums]:
                if source is None or not mine:
                    return mine, {}
                folder, names = source, list(mine)
                return mine, self._patiently(storage_id, lambda: self._store.add(storage_id, folder, names))

            return self._publish(storage_id, metadata, add, started, group)

        self._finishing.finish(publish, storage_id, beside)
        return storage_id

    # --- before there are files -----------------------------------------------------------------------------------------

    def _stage(self) -> Tuple[str, Path]:
        storage_id: str = self._dist.broadcast(new_id())
        together(self._dist, lambda: self._store.stage(storage_id) if self._dist.rank == 0 else None)
        paths = together(self._dist, lambda: self._store.stage(storage_id))
        return storage_id, paths[self._dist.rank]

    def _group(self, beside: bool) -> Group:
        if not beside:
            return self._dist
        if self._beside is None:
            self._beside = self._dist._another_group()
        return self._beside

    def _settle_directories(self, group: Group, source: Optional[Path], selector: Optional[Selector]) -> Dict[str, int]:
        """The files that this worker uploads: none if a worker of this machine with a lower rank has the very same directory."""

        def offer() -> Tuple[Optional[Tuple[int, int, int]], Dict[str, int]]:
            if source is None:
                if selector is not None:
                    raise RuntimeError("a selector needs a ckpt_dir")
                return None, {}
            found = os.stat(source)
            return (self._dist.cross_rank, found.st_dev, found.st_ino), selected(source, selector)

        offers = together(group, offer)
        directory, files = offers[self._dist.rank]
        if all(one is None for one, _ in offers):
            raise RuntimeError("upload(shard=True): no worker has a ckpt_dir")
        selecting = group.allgather(selector is not None)
        if not selecting[self._dist.rank] and directory is not None:
            first = next(r for r, (one, _) in enumerate(offers) if one == directory and not selecting[r])
            if first != self._dist.rank:
                return {}
        return files

    def _settle_conflicts(self, group: Group, source: Optional[Path], files: Dict[str, int]) -> Dict[str, int]:
        """What this worker has to copy when files that several bring are the same; else RuntimeError, on all workers."""
        _, conflicts = merge_resources(group.allgather(files))

        def checksums() -> Dict[str, Any]:
            mine = [name for name in conflicts if name in files and source is not None]
            found: Dict[str, Any] = dict(measure(source, mine)) if source is not None else {}
            found.update({name: "a directory" for name in conflicts if f"{name}/" in files})
            return found

        everybodys = together(group, checksums) if conflicts else []
        different = {n: r for n, r in conflicts.items() if len({str(one[n]) for one in everybodys if n in one}) > 1}
        _refuse(different, "files")
        return {n: s for n, s in files.items() if n not in conflicts or conflicts[n][0] == self._dist.rank}

    # --- publishing -----------------------------------------------------------------------------------------------------

    def _publish(
        self,
        storage_id: str,
        metadata: Optional[Dict[str, Any]],
        bring: Callable[[], Tuple[Dict[str, int], Checksums]],
        started: float,
        group: Group,
    ) -> Part:
        """Publish what all have staged. ``bring`` returns the files that this worker sees, and those of them that are safe."""
        chief = self._dist.rank == 0
        try:
            all_brought = together(group, lambda: Brought(*bring(), jsonable(metadata or {}, "metadata")))
            mine = self._share(all_brought)
            flushed = together(group, lambda: self._patiently(storage_id, lambda: self._store.flush(storage_id, mine)))
            done = together(group, lambda: self._publish_all(storage_id, all_brought, flushed) if chief else None)
        except BaseException:
            self._give_up(storage_id)
            raise
        self._leave(storage_id)
        files, plain, without = cast(Tuple[Dict[str, int], Dict[str, Any], List[str]], done[0])
        if chief:
            self._finishing.report(storage_id, files, plain, started)
        own = [*mine, *all_brought[self._dist.rank].safe, *([METADATA] if chief else [])]
        left = set(without)
        return Part([name for name in own if name in left], large_of(own, files))

    def _share(self, all_brought: Sequence[Brought]) -> List[str]:
        """The files that this worker is to bring to safety and to sum: those nobody has, spread over the workers that see them."""
        known = {name for brought in all_brought for name in brought.safe} | {METADATA}
        mine = []
        for name in files_of(all_brought[self._dist.rank].files):
            if name not in known:
                seers = [rank for rank, brought in enumerate(all_brought) if name in brought.files]
                if seers[zlib.crc32(name.encode()) % len(seers)] == self._dist.rank:
                    mine.append(name)
        return mine

    def _publish_all(
        self, storage_id: str, all_brought: Sequence[Brought], flushed: Sequence[Checksums]
    ) -> Tuple[Dict[str, int], Dict[str, Any], List[str]]:
        """The chief's: the checkpoint's files, its metadata, and the files without checksums."""
        merged, conflicts = merge_metadata([brought.metadata for brought in all_brought])
        _refuse(conflicts, "metadata")
        plain = self._finishing.checked(merged)
        files: Dict[str, int] = {}
        safe: Checksums = {}
        for brought, more in zip(all_brought, flushed):
            files.update(brought.files)
            safe.update({**brought.safe, **more})
        files[METADATA] = write_metadata(self._store.stage(storage_id), plain)
        self._patiently(storage_id, lambda: self._store.publish(storage_id, safe, files, defer_checksums=True))
        return files, plain, self._store.without_checksums(storage_id)

    def _give_up(self, storage_id: str) -> None:
        """The chief alone discards: another worker that lost its connection cannot know whether the chief is publishing."""
        if self._dist.rank == 0:
            self._store.discard(storage_id)
        self._leave(storage_id)

    def _leave(self, storage_id: str) -> None:
        if self._dist.local_rank == 0:
            self._store.leave(storage_id)


def _refuse(conflicts: Conflicts, what: str) -> None:
    if conflicts:
        lines = "".join(
            f"\n    {name}: ranks {', '.join(map(str, ranks))}" for name, ranks in sorted(conflicts.items())
        )
        raise RuntimeError(f"the workers uploaded conflicting {what}:{lines}")


def _raise(error: Exception) -> None:
    raise error
