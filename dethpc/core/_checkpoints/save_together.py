"""A checkpoint that all workers save together, each with files of its own."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from dethpc.core._checkpoints.outbox import Outbox, Waiting
from dethpc.core._checkpoints.saving import METADATA, Finishing, Part, Write, large_of, new_id, selected, write_metadata
from dethpc.core._collective import collectively
from dethpc.core._distributed import DistributedContext, Group
from dethpc.core._encode import jsonable
from dethpc.errors import CheckpointError
from dethpc.storage import CheckpointStore
from dethpc.storage.base import PathLike, Selector
from dethpc.storage.manifest import Checksums, files_of, listing, measure

logger = logging.getLogger("dethpc.core")


T = TypeVar("T")


class Brought(NamedTuple):
    """What one worker brings: the files that it sees, its metadata, and whether others wait for the store to be back already."""

    files: Dict[str, int]
    metadata: Dict[str, Any]
    behind: bool


class Published(NamedTuple):
    """What the chief published, and which files of it have no checksums yet."""

    files: Dict[str, int]
    metadata: Dict[str, Any]
    without_checksums: List[str]


class Source(NamedTuple):
    """Where this worker's files are: ``root`` is None where it has none. ``staged``: the store gave it that folder."""

    root: Optional[Path]
    staged: bool

    def send(self, store: CheckpointStore, storage_id: str, names: Sequence[str]) -> Checksums:
        """Bring them to safety. Names of directories end in "/"."""
        if self.root is None or not names:
            return {}
        return store.flush(storage_id, files_of(names)) if self.staged else store.add(storage_id, self.root, names)


class SaveTogether:
    """See ``CheckpointContext.store_path`` and ``upload`` with ``shard=True``. All workers make the same calls, in step."""

    def __init__(self, dist: DistributedContext, store: CheckpointStore, finishing: Finishing, outbox: Outbox) -> None:
        self._dist, self._store, self._finishing, self._outbox = dist, store, finishing, outbox
        self._background_group: Optional[Group] = None  # of the workers, for what they do together in the background

    def close(self) -> None:
        if self._background_group is not None:
            self._background_group.close()

    @contextlib.contextmanager
    def store_path(
        self, metadata: Optional[Dict[str, Any]], write: Optional[Write], in_background: bool
    ) -> Iterator[Tuple[Path, str]]:
        started = time.monotonic()
        storage_id, path = self._stage()
        group = self._group(in_background)
        try:
            yield path, storage_id
        except BaseException as error:
            # The others wait for this worker: tell them that there will be no checkpoint.
            failure = RuntimeError(f"its block failed: {error!r}")
            with contextlib.suppress(ConnectionError, RuntimeError):
                collectively(group, lambda: _raise(failure))
            self._give_up(storage_id)
            raise
        if in_background:
            metadata = copy.deepcopy(metadata)  # the training may go on to change it
        self._finish_written(storage_id, path, write or (lambda _: None), metadata, started, in_background)

    def store_async(self, write: Write, metadata: Optional[Dict[str, Any]]) -> str:
        started = time.monotonic()
        storage_id, path = self._stage()
        self._finish_written(storage_id, path, write, copy.deepcopy(metadata), started, in_background=True)
        return storage_id

    def _finish_written(
        self,
        storage_id: str,
        path: Path,
        write: Write,
        metadata: Optional[Dict[str, Any]],
        started: float,
        in_background: bool,
    ) -> None:
        """Publish what ``write`` writes. Nobody looks at the files before all have written theirs: another worker's may still
        grow, or lose the name that it has while it is written."""
        group = self._group(in_background)

        def publish() -> Part:
            try:
                collectively(group, lambda: write(path))
            except BaseException:
                self._give_up(storage_id)
                raise
            return self._publish(storage_id, metadata, lambda: listing(path), Source(path, True), started, group)

        self._finishing.finish(publish, storage_id, in_background)

    def upload(
        self,
        ckpt_dir: Optional[PathLike],
        metadata: Optional[Dict[str, Any]],
        selector: Optional[Selector],
        in_background: bool,
    ) -> str:
        started = time.monotonic()
        source = None if ckpt_dir is None else Path(os.path.realpath(ckpt_dir))
        if in_background:
            metadata = copy.deepcopy(metadata)
        storage_id, _ = self._stage()
        group = self._group(in_background)

        def publish() -> Part:
            try:
                mine = _settle_conflicts(
                    self._dist, group, source, _settle_directories(self._dist, group, source, selector)
                )
            except BaseException:
                self._give_up(storage_id)
                raise

            return self._publish(storage_id, metadata, lambda: mine, Source(source, False), started, group)

        self._finishing.finish(publish, storage_id, in_background)
        return storage_id

    # --- before there are files -----------------------------------------------------------------------------------------

    def _stage(self) -> Tuple[str, Path]:
        storage_id: str = self._dist.broadcast(new_id())
        with self._finishing.full_storage_told():
            collectively(self._dist, lambda: self._store.stage(storage_id) if self._dist.rank == 0 else None)
            paths = collectively(self._dist, lambda: self._store.stage(storage_id))
        return storage_id, paths[self._dist.rank]

    def _group(self, in_background: bool) -> Group:
        if not in_background:
            return self._dist
        if self._background_group is None:
            self._background_group = self._dist._another_group()
        return self._background_group

    # --- publishing -----------------------------------------------------------------------------------------------------

    def _publish(
        self,
        storage_id: str,
        metadata: Optional[Dict[str, Any]],
        seen: Callable[[], Dict[str, int]],
        source: Source,
        started: float,
        group: Group,
    ) -> Part:
        """Publish what all have staged, or keep it in the fallback while the store is away. ``seen``: the files of this worker."""
        chief = self._dist.rank == 0
        try:
            all_brought = collectively(
                group, lambda: Brought(seen(), jsonable(metadata or {}, "metadata"), self._outbox.is_behind())
            )
            names = _share(self._dist.rank, all_brought)
            save = _Save(storage_id, group, source, names, all_brought)
            published, fallback = None, self._store.fallback
            if fallback is None or not all_brought[0].behind:
                published = self._to_store(save, wait=fallback is None)
            aside = self._to_fallback(save, fallback) if published is None and fallback is not None else None
            published = published or aside or self._to_store(save, wait=True)
        except BaseException:
            self._give_up(storage_id)
            raise
        self._leave(storage_id)
        assert published is not None  # who waits gets it, or an exception
        files, plain, without = published
        if aside is not None:
            if chief:
                self._finishing.report_in_fallback(storage_id, files, plain)
                self._outbox.follow(Waiting(storage_id, files, plain, self._store, self._finishing))
            return Part([], [])
        if chief:
            self._finishing.report(storage_id, files, plain, started)
        own = [*files_of(names), *([METADATA] if chief else [])]
        omitted = set(without)
        return Part([name for name in own if name in omitted], large_of(own, files))

    def _to_store(self, save: _Save, wait: bool) -> Optional[Published]:
        """Publish it in the store. ``wait``: for half an hour while it is away; else None then, on all workers."""

        def tried(call: Callable[[], T]) -> Optional[T]:
            if wait:
                return self._finishing.patiently(save.storage_id, call)
            try:
                return call()
            except OSError as error:
                if not self._store.may_come_back(error):
                    raise
                logger.warning("checkpoint %s cannot go to %s now: %s", save.storage_id, self._store, error)
                return None

        return self._write(save, self._store, save.source, tried)

    def _to_fallback(self, save: _Save, fallback: CheckpointStore) -> Optional[Published]:
        """Publish it there; None, on all workers, where that has no room or cannot be written."""
        chief, published = self._dist.rank == 0, None

        def tried(call: Callable[[], T]) -> Optional[T]:
            try:
                return call()
            except (OSError, CheckpointError) as error:
                logger.warning("checkpoint %s cannot be kept in %s: %s", save.storage_id, fallback, error)
                return None

        def begin() -> Path:
            files = {name: size for brought in save.all_brought for name, size in brought.files.items()}
            fallback.check_room(sum(files.values()))
            return fallback.stage(save.storage_id)

        if collectively(save.group, lambda: tried(begin) if chief else None)[0] is None:
            return None
        try:
            source = Source(save.source.root, staged=False)  # which stays as it is
            published = self._write(save, fallback, source, tried)
        finally:
            if published is None and chief:
                fallback.discard(save.storage_id)
        return published

    def _write(
        self, save: _Save, store: CheckpointStore, source: Source, tried: Callable[[Callable[[], Any]], Any]
    ) -> Optional[Published]:
        """All send, and then the chief publishes; None, for all alike, where one of them is refused by ``tried``."""
        sent = collectively(save.group, lambda: tried(lambda: source.send(store, save.storage_id, save.names)))
        whole = [checksums for checksums in sent if checksums is not None]
        defer = store is self._store

        def publish() -> Optional[Published]:
            files, plain, safe = _put_together(self._finishing, save, whole, store.stage(save.storage_id))
            if tried(lambda: store.publish(save.storage_id, safe, files, defer_checksums=defer)) is None:
                return None
            return Published(files, plain, self._finishing.unsummed(save.storage_id) if defer else [])

        if len(whole) < len(sent):
            return None
        return collectively(save.group, lambda: publish() if self._dist.rank == 0 else None)[0]

    def _give_up(self, storage_id: str) -> None:
        """The chief alone discards: another worker that lost its connection cannot know whether the chief is publishing."""
        if self._dist.rank == 0:
            self._finishing.tell_if_full(sys.exc_info()[1])
            self._store.discard(storage_id)
        self._leave(storage_id)

    def _leave(self, storage_id: str) -> None:
        if self._dist.local_rank == 0:
            self._store.leave(storage_id)


class _Save(NamedTuple):
    """What all know of a checkpoint that they save; ``names``: what this worker brings of its ``source``."""

    storage_id: str
    group: Group
    source: Source
    names: List[str]
    all_brought: Sequence[Brought]


def _settle_directories(
    dist: DistributedContext, group: Group, source: Optional[Path], selector: Optional[Selector]
) -> Dict[str, int]:
    """The files that this worker uploads: none if a worker of this machine with a lower rank has the very same directory."""

    def offer() -> Tuple[Optional[Tuple[int, int, int]], Dict[str, int]]:
        if source is None:
            if selector is not None:
                raise RuntimeError("a selector needs a ckpt_dir")
            return None, {}
        status = os.stat(source)
        return (dist.cross_rank, status.st_dev, status.st_ino), selected(source, selector)

    offers = collectively(group, offer)
    directory, files = offers[dist.rank]
    if all(one is None for one, _ in offers):
        raise RuntimeError("upload(shard=True): no worker has a ckpt_dir")
    selecting = group.allgather(selector is not None)
    if not selecting[dist.rank] and directory is not None:
        first = next(r for r, (one, _) in enumerate(offers) if one == directory and not selecting[r])
        if first != dist.rank:
            return {}
    return files


def _settle_conflicts(
    dist: DistributedContext, group: Group, source: Optional[Path], files: Dict[str, int]
) -> Dict[str, int]:
    """What this worker has to copy when files that several bring are the same; else RuntimeError, on all workers."""
    _, conflicts = merge_resources(group.allgather(files))

    def checksums() -> Dict[str, Any]:
        mine = [name for name in conflicts if name in files and source is not None]
        digests: Dict[str, Any] = dict(measure(source, mine)) if source is not None else {}
        digests.update({name: "a directory" for name in conflicts if f"{name}/" in files})
        return digests

    everybodys = collectively(group, checksums) if conflicts else []
    different = {n: r for n, r in conflicts.items() if len({str(one[n]) for one in everybodys if n in one}) > 1}
    _refuse(different, "files")
    return {n: s for n, s in files.items() if n not in conflicts or conflicts[n][0] == dist.rank}


def _share(rank: int, all_brought: Sequence[Brought]) -> List[str]:
    """The files that this worker is to bring to safety and to sum, spread over the workers that see them; and the directories
    that it sees."""
    mine = []
    for name in all_brought[rank].files:
        seers = [seer for seer, brought in enumerate(all_brought) if name in brought.files]
        picked = seers[zlib.crc32(name.encode()) % len(seers)] == rank
        if name.endswith("/") or (picked and name != METADATA):
            mine.append(name)
    return mine


def _put_together(
    finishing: Finishing, save: _Save, sent: Sequence[Checksums], staged: Path
) -> Tuple[Dict[str, int], Dict[str, Any], Checksums]:
    """The chief's: the checkpoint's files, its metadata, which are written to where it is ``staged``, and what is safe."""
    merged, conflicts = merge_metadata([brought.metadata for brought in save.all_brought])
    _refuse(conflicts, "metadata")
    plain = finishing.checked(merged)
    files: Dict[str, int] = {}
    safe: Checksums = {}
    for brought, more in zip(save.all_brought, sent):
        files.update(brought.files)
        safe.update(more)
    files[METADATA] = write_metadata(staged, plain)
    return files, plain, safe


def _refuse(conflicts: Conflicts, what: str) -> None:
    if conflicts:
        lines = "".join(
            f"\n    {name}: ranks {', '.join(map(str, ranks))}" for name, ranks in sorted(conflicts.items())
        )
        raise RuntimeError(f"the workers uploaded conflicting {what}:{lines}")


def _raise(error: Exception) -> None:
    raise error


Conflicts = Dict[str, List[int]]
"""Name -> ranks that disagree about it."""


def merge_metadata(all_metadata: Sequence[Dict[str, Any]]) -> Tuple[Dict[str, Any], Conflicts]:
    """One dict of all ranks' metadata. Dicts merge key by key; other values must be equal. Conflicts are named "/key/key"."""
    merged: Dict[str, Any] = {}
    owners: Dict[str, List[int]] = {}
    conflicts: Conflicts = {}

    def merge(into: Dict[str, Any], add: Dict[str, Any], rank: int, prefix: str) -> None:
        for key, value in add.items():
            name = f"{prefix}/{key}"
            if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
                merge(into.setdefault(key, {}), value, rank, name)
            elif key not in into:
                into[key] = value
            elif into[key] != value:
                conflicts.setdefault(name, list(owners.get(name, []))).append(rank)
            owners.setdefault(name, []).append(rank)

    for rank, metadata in enumerate(all_metadata):
        merge(merged, metadata, rank, "")
    return merged, conflicts


def merge_resources(all_resources: Sequence[Dict[str, int]]) -> Tuple[Dict[str, int], Conflicts]:
    """One listing of all ranks' files. A file that several ranks bring, or that another rank has as a directory, is a
    conflict (which equal contents may yet resolve); a directory that several ranks bring is not."""
    merged: Dict[str, int] = {}
    ranks: Dict[str, List[int]] = {}
    files = set()
    for rank, resources in enumerate(all_resources):
        for name, size in resources.items():
            merged[name] = size
            ranks.setdefault(name.rstrip("/"), []).append(rank)
            if not name.endswith("/"):
                files.add(name)
    return merged, {name: ranks[name] for name in sorted(files) if len(ranks[name]) > 1}
