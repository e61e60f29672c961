"""Saving and restoring checkpoints, by one worker or by all of them together."""

from __future__ import annotations

import contextlib
import enum
import json
import logging
import os
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar, Union, cast

from dethpc.core._background import Background
from dethpc.core._distributed import DistributedContext, Group
from dethpc.core._encode import jsonable
from dethpc.core._merge import Conflicts, merge_metadata, merge_resources
from dethpc.errors import CheckpointError, MasterError, NotFound, Refused
from dethpc.storage import FileStorage
from dethpc.storage.manifest import Sums, files_of, listing, measure

if TYPE_CHECKING:
    from dethpc.client.session import Session

logger = logging.getLogger("dethpc.core")

T = TypeVar("T")
PathLike = Union[str, "os.PathLike[str]"]
Selector = Callable[[str], bool]
"""Takes a path relative to the checkpoint (directories end in "/") and says whether it is wanted."""

_METADATA = "metadata.json"


class DownloadMode(enum.Enum):
    """``LocalWorkersShareDownload``: one copy per machine, and all workers must call in step. ``NoSharedDownload``: each worker
    for itself, whenever it wants."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    """Stores and restores checkpoints.

    A checkpoint is published whole and on disk, or not at all, and then reported; it counts once the master has taken that report.
    Large files get their checksums right after that, beside the training. Its name, the ``storage_id``, is a random uuid.
    Metadata are a dict of JSON values and must have a ``steps_completed``, from which the trial goes on.
    """

    def __init__(
        self,
        dist: DistributedContext,
        storage: FileStorage,
        section: Optional[Dict[str, Any]],
        session: Optional[Session],
        report: Callable[[str, Dict[str, Any]], Any],
    ) -> None:
        self._dist = dist
        self._storage_manager = storage
        self._section = section
        self._session = session
        self._report = report
        self._background = Background()
        self._beside: Optional[Group] = None  # of the workers, for what they do together in the background

    # --- storing --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def store_path(
        self, metadata: Optional[Dict[str, Any]] = None, *, shard: bool = False
    ) -> Iterator[Tuple[Path, str]]:
        """A directory to save into, and the storage id; the checkpoint is published when the block ends without an exception.

        The directory has another name afterwards: use ``restore_path`` to get at a stored checkpoint.

        ``shard=False``: the chief alone may call it. ``shard=True``: all workers must call it, also those that write nothing;
        they write into one directory, and their metadata are merged.
        """
        with self._store_sharded(metadata, False) if shard else self._store_single(metadata, False) as both:
            yield both

    @contextlib.contextmanager
    def store_path_async(
        self, metadata: Optional[Dict[str, Any]] = None, *, shard: bool = False
    ) -> Iterator[Tuple[Path, str]]:
        """As ``store_path``, but the block ends as soon as its files are written: bringing them to disk, publishing and reporting
        go on beside the training.

        Until then the checkpoint does not exist: whoever dies leaves the one before as the latest. One at a time is on its way:
        the next call, every other call for checkpoints, ``wait()`` and leaving the core context first wait for it, and raise what
        it failed with. Do not change what has been written after the block.
        """
        with self._store_sharded(metadata, True) if shard else self._store_single(metadata, True) as both:
            yield both

    def wait(self) -> None:
        """Until what ``store_path_async`` began is published, with its checksums. Raises what it failed with, once."""
        self._background.wait()

    @contextlib.contextmanager
    def _store_single(self, metadata: Optional[Dict[str, Any]], beside: bool) -> Iterator[Tuple[Path, str]]:
        self._only_chief("store_path(shard=False)")
        self.wait()
        started = time.monotonic()
        storage_id = _new_id()
        path = self._storage_manager.stage(storage_id)
        try:
            yield path, storage_id
            plain = _checked(metadata)
            _write_metadata(path, plain)
        except BaseException:
            self._storage_manager.discard(storage_id)
            raise

        def publish() -> List[str]:
            try:
                resources = self._storage_manager.publish(storage_id, sum_later=True)
            except BaseException:
                self._storage_manager.discard(storage_id)
                raise
            self._report_checkpoint(storage_id, resources, plain, started)
            return self._storage_manager.unsummed(storage_id)

        self._finish(publish, storage_id, beside)

    @contextlib.contextmanager
    def _store_sharded(self, metadata: Optional[Dict[str, Any]], beside: bool) -> Iterator[Tuple[Path, str]]:
        self.wait()
        started = time.monotonic()
        storage_id, path = self._stage_together()
        if beside and self._beside is None:
            self._beside = self._dist._another_group()
        group = self._beside if beside else None
        try:
            yield path, storage_id
        except BaseException as error:
            # The others wait for this worker: tell them that there will be no checkpoint.
            failure = RuntimeError(f"its block failed: {error!r}")
            with contextlib.suppress(ConnectionError, RuntimeError):
                self._together(lambda: _raise(failure), group)
            if self._dist.rank == 0:
                self._storage_manager.discard(storage_id)
            raise
        if beside:
            import copy

            metadata = copy.deepcopy(metadata)  # the training may go on to change it

        def publish() -> List[str]:
            return self._publish_together(storage_id, metadata, lambda: (listing(path), {}), started, group)

        self._finish(publish, storage_id, beside)

    def _finish(self, publish: Callable[[], List[str]], storage_id: str, beside: bool) -> None:
        """Publish, now or in the background; what that leaves without checksums is summed in the background."""
        if beside:
            self._background.start(lambda: self._sum(storage_id, publish()))
        elif unsummed := publish():
            self._background.start(lambda: self._sum(storage_id, unsummed))

    def _sum(self, storage_id: str, paths: List[str]) -> None:
        if paths:
            try:
                self._storage_manager.complete(storage_id, paths, self._dist.rank)
            except (OSError, CheckpointError) as error:  # somebody has deleted it; or else a reader will see
                logger.warning("checkpoint %s stays without checksums for some files: %s", storage_id, error)

    def _close(self, failing: bool) -> None:
        """``failing``: the training ends with an exception already, which is what is to be seen."""
        try:
            self._background.close()
        except Exception as error:
            if not failing:
                raise
            logger.error("the last checkpoint could not be published: %s", error)
        finally:
            if self._beside is not None:
                self._beside.close()

    def upload(
        self,
        ckpt_dir: Optional[PathLike],
        metadata: Optional[Dict[str, Any]] = None,
        *,
        shard: bool = False,
        selector: Optional[Selector] = None,
    ) -> str:
        """Store a copy of the directory ``ckpt_dir`` (of it, what ``selector`` wants) and return the storage id.

        ``shard=False``: the chief alone may call it. ``shard=True``: all workers must call it, those with nothing to add pass
        None; the checkpoint is the union. Workers that bring the same directory share the work, unless they give selectors. A
        file that several workers bring must have the same content.
        """
        if shard:
            return self._upload_sharded(ckpt_dir, metadata, selector)
        self._only_chief("upload(shard=False)")
        self.wait()
        if ckpt_dir is None:
            raise RuntimeError("upload(ckpt_dir=None, shard=False) would store nothing")
        started = time.monotonic()
        plain = _checked(metadata)
        source = Path(ckpt_dir)
        storage_id = _new_id()
        paths = _selected(_listing(source), selector)
        try:
            staged = self._storage_manager.stage(storage_id)
            sums = self._storage_manager.copy_in(source, storage_id, list(paths))
            _write_metadata(staged, plain)
            resources = self._storage_manager.publish(storage_id, sums)
        except BaseException:
            self._storage_manager.discard(storage_id)
            raise
        self._report_checkpoint(storage_id, resources, plain, started)
        return storage_id

    def _upload_sharded(
        self, ckpt_dir: Optional[PathLike], metadata: Optional[Dict[str, Any]], selector: Optional[Selector]
    ) -> str:
        self.wait()
        started = time.monotonic()
        source = None if ckpt_dir is None else Path(ckpt_dir)

        def offer() -> Tuple[Optional[Tuple[int, int, int]], Dict[str, int]]:
            if source is None:
                if selector is not None:
                    raise RuntimeError("a selector needs a ckpt_dir")
                return None, {}
            found = os.stat(source)
            return (self._dist.cross_rank, found.st_dev, found.st_ino), _selected(_listing(source), selector)

        directory, resources = self._mine(offers := self._together(offer))
        if all(one is None for one, _ in offers):
            raise RuntimeError("upload(shard=True): no worker has a ckpt_dir")
        selecting = self._dist.allgather(selector is not None)
        if not selecting[self._dist.rank] and directory is not None:
            first = next(r for r, (one, _) in enumerate(offers) if one == directory and not selecting[r])
            if first != self._dist.rank:
                resources = {}  # a worker of this machine with a lower rank uploads the very same directory
        mine = self._settle_conflicts(source, resources)
        storage_id, _ = self._stage_together()

        def copy_in() -> Tuple[Dict[str, int], Sums]:
            sums = self._storage_manager.copy_in(source, storage_id, list(mine)) if source is not None and mine else {}
            return mine, sums

        self._finish(lambda: self._publish_together(storage_id, metadata, copy_in, started), storage_id, beside=False)
        return storage_id

    def _settle_conflicts(self, source: Optional[Path], resources: Dict[str, int]) -> Dict[str, int]:
        """What this worker has to copy when files that several bring are the same; else RuntimeError, on all workers."""
        _, conflicts = merge_resources(self._dist.allgather(resources))

        def sums() -> Dict[str, Any]:
            mine = [name for name in conflicts if name in resources and source is not None]
            found: Dict[str, Any] = dict(measure(source, mine)) if source is not None else {}
            found.update({name: "a directory" for name in conflicts if f"{name}/" in resources})
            return found

        everybodys = self._together(sums) if conflicts else []
        different = {n: r for n, r in conflicts.items() if len({str(one[n]) for one in everybodys if n in one}) > 1}
        _refuse(different, "files")
        return {
            name: size
            for name, size in resources.items()
            if name not in conflicts or conflicts[name][0] == self._dist.rank
        }

    def _stage_together(self) -> Tuple[str, Path]:
        storage_id: str = self._dist.broadcast(_new_id())
        storage = self._storage_manager
        self._together(lambda: storage.stage(storage_id) if self._dist.rank == 0 else None)
        paths = self._together(lambda: storage.stage(storage_id))
        return storage_id, self._mine(paths)

    def _publish_together(
        self,
        storage_id: str,
        metadata: Optional[Dict[str, Any]],
        bring: Callable[[], Tuple[Dict[str, int], Sums]],
        started: float,
        group: Optional[Group] = None,
    ) -> List[str]:
        """Publish what all have staged. ``bring`` says what this worker knows to be there, and the sums that it has. Returns what
        is left for this worker to sum."""
        storage = self._storage_manager

        def publish(brought: List[Any]) -> Tuple[Dict[str, int], Dict[str, Any], List[str]]:
            merged, conflicts = merge_metadata([one for _, one in brought])
            _refuse(conflicts, "metadata")
            plain = _checked(merged)
            resources: Dict[str, int] = {}
            sums: Sums = {}
            for (theirs, known), _ in brought:
                resources.update(theirs)
                sums.update(known)
            flushed = set(resources) - {_METADATA}
            path = storage.stage(storage_id)
            resources[_METADATA] = _write_metadata(path, plain)
            sums.pop(_METADATA, None)
            storage.publish(storage_id, sums, resources, flushed=flushed, sum_later=True)
            return resources, plain, storage.unsummed(storage_id)

        try:
            offers = self._together(lambda: (bring(), jsonable(metadata or {}, "metadata")), group)
            mine = self._share(offers)
            self._together(lambda: storage.flush(storage_id, mine), group)
            done = self._together(lambda: publish(offers) if self._dist.rank == 0 else None, group)
        except BaseException:
            if self._dist.rank == 0:
                storage.discard(storage_id)
            raise
        resources, plain, unsummed = cast(Tuple[Dict[str, int], Dict[str, Any], List[str]], done[0])
        if self._dist.rank == 0:
            self._report_checkpoint(storage_id, resources, plain, started)
        left = set(unsummed)
        return [name for name in mine if name in left] + (
            [_METADATA] if _METADATA in left and self._dist.rank == 0 else []
        )

    def _share(self, offers: List[Any]) -> List[str]:
        """The files that this worker is to bring to disk and to sum: those nobody has, spread over the workers that see them."""
        known = {name for (_, sums), _ in offers for name in sums} | {_METADATA}
        mine = []
        for name in files_of(offers[self._dist.rank][0][0]):
            if name not in known:
                seers = [rank for rank, ((theirs, _), _) in enumerate(offers) if name in theirs]
                if seers[zlib.crc32(name.encode()) % len(seers)] == self._dist.rank:
                    mine.append(name)
        return mine

    # --- restoring ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Optional[Selector] = None,
    ) -> Iterator[Path]:
        """A directory that holds the checkpoint, for reading inside the block; its checksums have been compared.

        With a ``selector`` only what it wants (in shared mode: what any worker of the machine wants) is sure to be there and
        compared. Raises CheckpointError, on all workers in shared mode.
        """
        self.wait()
        if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
            with self._storage_manager.restore_path(storage_id, selector) as path:
                yield path
            return
        wanted = self._wanted_here(storage_id, selector)
        machines, here = self._dist.cross_size, self._dist.cross_rank

        def compare(path: str) -> bool:
            """Every machine sees the same files: they share the work."""
            return (wanted is None or path in wanted) and zlib.crc32(path.encode()) % machines == here

        with contextlib.ExitStack() as stack:

            def enter() -> Optional[Path]:
                if self._dist.local_rank != 0:
                    return None
                return stack.enter_context(self._storage_manager.restore_path(storage_id, compare))

            path = self._dist.broadcast_local(self._mine(self._together(enter)))
            try:
                yield path
            finally:
                with contextlib.suppress(ConnectionError):
                    self._dist.gather_local(None)

    def download(
        self,
        storage_id: str,
        ckpt_dir: PathLike,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Optional[Selector] = None,
    ) -> None:
        """Copy the checkpoint (of it, what ``selector`` wants) to ``ckpt_dir``, which is created; checksums are compared.

        In shared mode one worker per machine copies what any of them wants. Raises CheckpointError.
        """
        self.wait()
        if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
            self._storage_manager.download(storage_id, ckpt_dir, selector)
            return
        wanted = self._wanted_here(storage_id, selector)
        choose = None if wanted is None else wanted.__contains__

        def copy() -> None:
            if self._dist.local_rank == 0:
                self._storage_manager.download(storage_id, ckpt_dir, choose)

        self._together(copy)

    def _wanted_here(self, storage_id: str, selector: Optional[Selector]) -> Optional[set[str]]:
        """The paths that any worker of this machine wants; None: all. Functions do not travel, so the names do."""
        if not any(self._dist.allgather(selector is not None)):
            return None
        names = self._together(lambda: list(self._storage_manager.resources(storage_id)))[0]
        choice = self._together(lambda: [name for name in names if selector is None or selector(name)])
        machines = self._dist.allgather(self._dist.cross_rank)
        return {name for one, m in zip(choice, machines) if m == self._dist.cross_rank for name in one}

    def get_metadata(self, storage_id: str) -> Dict[str, Any]:
        """The checkpoint's metadata: as the master has them now, or as they were stored when the master cannot say."""
        self.wait()
        if self._session is not None:
            try:
                found = (self._session.get(f"/api/v1/checkpoints/{storage_id}", timeout=10) or {}).get(
                    "checkpoint"
                ) or {}
                if found.get("metadata"):
                    return dict(found["metadata"])
            except (MasterError, NotFound, Refused) as error:
                logger.debug("the metadata of %s come from storage: %s", storage_id, error)
        return self._storage_manager.metadata(storage_id)

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint and report that it is gone. The chief alone."""
        self._only_chief("delete()")
        self.wait()
        left = self._storage_manager.delete(storage_id)
        self._report("checkpoint_deleted", {"uuid": storage_id, "resources": left})
        logger.info("deleted checkpoint %s", storage_id)

    # --- what all of it needs -------------------------------------------------------------------------------------------

    def _report_checkpoint(
        self, storage_id: str, resources: Dict[str, int], metadata: Dict[str, Any], started: float
    ) -> None:
        """``started``: by the monotonic clock, when saving began. From what it took the next run knows when to stop."""
        self._report(
            "checkpoint",
            {
                "uuid": storage_id,
                "steps_completed": int(metadata["steps_completed"]),
                "metadata": metadata,
                "resources": resources,
                "storage": self._section,
                "seconds": round(time.monotonic() - started, 3),
            },
        )
        logger.info("stored checkpoint %s", storage_id)

    def _only_chief(self, call: str) -> None:
        if self._dist.rank != 0:
            raise RuntimeError(f"only the chief may call checkpoint.{call}; this is rank {self._dist.rank}")

    def _together(self, call: Callable[[], T], group: Optional[Group] = None) -> List[T]:
        """Every worker's result, by rank. If one fails all fail: itself with its exception, the others with its words.

        ``group``: by which they talk, when not by the context of all."""
        failure: Optional[BaseException] = None
        try:
            result: Tuple[bool, Any] = (True, call())
        except Exception as error:
            failure, result = error, (False, (isinstance(error, CheckpointError), str(error) or repr(error)))
        results = (group or self._dist).allgather(result)
        if failure is not None:
            raise failure
        for rank, (ok, told) in enumerate(results):
            if not ok:
                kind = CheckpointError if told[0] else RuntimeError
                raise kind(f"rank {rank}: {told[1]}")
        return [value for _, value in results]

    def _mine(self, results: List[T]) -> T:
        return results[self._dist.rank]


class DummyCheckpointContext(CheckpointContext):
    """Off the cluster: checkpoints are stored all the same, and logged instead of reported."""

    def __init__(self, dist: DistributedContext, storage_manager: FileStorage) -> None:
        super().__init__(dist, storage_manager, None, None, lambda kind, data: None)


def _new_id() -> str:
    import uuid

    return str(uuid.uuid4())


def _checked(metadata: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """Raises ValueError without steps_completed, TypeError for what JSON has no form for."""
    plain: Dict[str, Any] = jsonable(metadata or {}, "metadata")
    steps = plain.get("steps_completed")
    if isinstance(steps, bool) or not isinstance(steps, (int, float)) or int(steps) != steps:
        raise ValueError(f"the metadata of a checkpoint need a whole number 'steps_completed'; found {steps!r}")
    return plain


def _write_metadata(path: Path, metadata: Dict[str, Any]) -> int:
    return (path / _METADATA).write_bytes(json.dumps(metadata, indent=2).encode())


def _listing(source: Path) -> Dict[str, int]:
    if not source.is_dir():
        raise NotADirectoryError(f"{source} is not a directory")
    return listing(source)


def _selected(resources: Dict[str, int], selector: Optional[Selector]) -> Dict[str, int]:
    """Without the directory's own metadata.json: the checkpoint gets one from the metadata given."""
    return {n: s for n, s in resources.items() if n != _METADATA and (selector is None or selector(n))}


def _refuse(conflicts: Conflicts, what: str) -> None:
    if conflicts:
        lines = "".join(
            f"\n    {name}: ranks {', '.join(map(str, ranks))}" for name, ranks in sorted(conflicts.items())
        )
        raise RuntimeError(f"the workers bring {what} that contradict each other:{lines}")


def _raise(error: Exception) -> None:
    raise error
