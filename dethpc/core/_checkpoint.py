"""Saving and restoring checkpoints: the Core API's names for it. The work is done in ``_checkpoints`` and ``_restore``."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from dethpc.core._checkpoints.background import Background
from dethpc.core._checkpoints.outbox import Outbox
from dethpc.core._checkpoints.save_alone import SaveAlone
from dethpc.core._checkpoints.save_together import SaveTogether
from dethpc.core._checkpoints.saving import Finishing
from dethpc.core._distributed import DistributedContext
from dethpc.core._restore import DownloadMode, Restore, RestoreOfPaths, folder_named
from dethpc.domain.attempts.end_report import plain_text
from dethpc.domain.reports import STORAGE_AWAY, ReportKind
from dethpc.errors import CheckpointDamaged, MasterError, NotFound, Refused
from dethpc.rundir.files import read_json
from dethpc.storage import CheckpointStore
from dethpc.storage.base import PathLike, Selector
from dethpc.storage.driver import StoreAway
from dethpc.storage.ownership import Claim

if TYPE_CHECKING:
    from dethpc.client.session import Session

logger = logging.getLogger("dethpc.core")


class CheckpointContext:
    """Stores and restores checkpoints.

    A checkpoint is published whole and on disk, or not at all, and then reported; it counts once the master has taken that report.
    Large files get their checksums right after that, beside the training. Its name, the ``storage_id``, is a random uuid.
    Metadata are a dict of JSON values and must have a ``steps_completed``, from which the trial goes on.
    """

    def __init__(
        self,
        dist: DistributedContext,
        storage: CheckpointStore,
        section: Optional[Dict[str, Any]],
        session: Optional[Session],
        report: Callable[[ReportKind, Dict[str, Any]], Any],
        latest: Optional[str] = None,
    ) -> None:
        self._dist = dist
        self._store = storage
        self._session = session
        self._report = report
        self._background = Background()
        on_cluster = session is not None
        finishing = Finishing(storage, self._background, dist.rank, section, report, on_cluster, latest)
        self._outbox = Outbox(storage)
        self._alone = SaveAlone(storage, finishing, self._outbox)
        self._sharded = SaveTogether(dist, storage, finishing, self._outbox)
        self._restore = Restore(dist, storage)

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
        with self._saving("store_path", shard).store_path(metadata, None, in_background=False) as both:
            yield both

    @contextlib.contextmanager
    def store_path_async(
        self,
        metadata: Optional[Dict[str, Any]] = None,
        *,
        shard: bool = False,
        write: Optional[Callable[[Path], object]] = None,
    ) -> Iterator[Tuple[Path, str]]:
        """As ``store_path``, but the block ends as soon as its files are written: bringing them to disk, publishing and reporting
        go on beside the training. So does ``write(path)``, which writes what else the checkpoint has, as for ``store_async``.

        Until then the checkpoint does not exist: whoever dies leaves the one before as the latest. One at a time is on its way:
        the next call, every other call for checkpoints, ``wait()`` and leaving the core context first wait for it, and raise what
        it failed with. Do not change what has been written after the block.
        """
        with self._saving("store_path", shard).store_path(metadata, write, in_background=True) as both:
            yield both

    def store_async(
        self, write: Callable[[Path], object], metadata: Optional[Dict[str, Any]] = None, *, shard: bool = False
    ) -> str:
        """As ``store_path_async``, but the files, too, are written beside the training: ``write(path)`` is called in a thread, with
        the directory to write into. Returns the storage id at once.

        ``write`` must not read what the training goes on to change: give it a copy (``dethpc.pytorch.Snapshot`` makes one of a
        model's state). With ``shard=True`` all workers call it, each with a ``write`` of its own; if one fails there is no
        checkpoint.
        """
        return self._saving("store_async", shard).store_async(write, metadata)

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
        return self._saving("upload", shard).upload(ckpt_dir, metadata, selector, in_background=False)

    def upload_async(
        self,
        ckpt_dir: Optional[PathLike],
        metadata: Optional[Dict[str, Any]] = None,
        *,
        shard: bool = False,
        selector: Optional[Selector] = None,
    ) -> str:
        """As ``upload``, but beside the training, as for ``store_path_async``: leave ``ckpt_dir`` as it is until then."""
        return self._saving("upload_async", shard).upload(ckpt_dir, metadata, selector, in_background=True)

    def wait(self) -> None:
        """Until what ``store_path_async`` began is published, with its checksums. Raises what it failed with, once.

        What waits for a storage that is away is not waited for: the training goes on (``MOST`` in ``outbox`` says for how long).
        """
        self._background.wait()

    def _wait_for(self, storage_id: str) -> None:
        """Until this checkpoint is where it can be read."""
        self.wait()
        self._outbox.settle(storage_id)

    def _saving(self, call: str, shard: bool) -> Union[SaveAlone, SaveTogether]:
        """Who saves, once what is under way is done."""
        if not shard:
            self._only_chief(f"{call}(shard=False)")
        self.wait()
        if not shard or self._dist.size == 1:
            return self._alone  # which goes on where the storage is away
        self._outbox.settle()
        return self._sharded

    def _tell_if_away(self, error: Optional[BaseException]) -> None:
        """Report why the training ends, where that is that its storage does not answer: no fault of its own."""
        seen: List[BaseException] = []
        while error is not None and error not in seen:
            if isinstance(error, StoreAway) and str(self._store) in str(error) and self._dist.rank == 0:
                self._report(ReportKind.EARLY_EXIT, {"reason": f"{STORAGE_AWAY}{plain_text(error)[:500]}"})
                return
            seen.append(error)
            error = error.__cause__ or error.__context__

    def _close(self, failing: bool) -> None:
        """``failing``: the training ends with an exception already, which is what is to be seen."""
        try:
            try:
                self._background.close()
            finally:
                self._outbox.close()
        except Exception as error:
            if not failing:
                raise
            logger.error("the last checkpoint could not be published: %s", error)
        finally:
            self._sharded.close()

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
        compared. Raises CheckpointError, on all workers in shared mode; CheckpointDamaged is reported as well, and the trial's next
        run begins at the checkpoint before.
        """
        self._wait_for(storage_id)
        with contextlib.ExitStack() as stack:
            with self._damage_reported(storage_id):
                path = stack.enter_context(self._restore.restore_path(storage_id, download_mode, selector))
            yield path

    def download(
        self,
        storage_id: str,
        ckpt_dir: PathLike,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Optional[Selector] = None,
    ) -> None:
        """Copy the checkpoint (of it, what ``selector`` wants) to ``ckpt_dir``, which is created; checksums are compared.

        In shared mode one worker per machine copies what any of them wants. Raises CheckpointError, as ``restore_path``.
        """
        self._wait_for(storage_id)
        with self._damage_reported(storage_id):
            self._restore.download(storage_id, ckpt_dir, download_mode, selector)

    def get_metadata(self, storage_id: str) -> Dict[str, Any]:
        """The checkpoint's metadata: as the master has them now, or as they were stored when the master cannot say."""
        self._wait_for(storage_id)
        if self._session is not None:
            try:
                checkpoint = (self._session.get(f"/api/v1/checkpoints/{storage_id}", timeout=10) or {}).get(
                    "checkpoint"
                ) or {}
                if checkpoint.get("metadata"):
                    return dict(checkpoint["metadata"])
            except (MasterError, NotFound, Refused) as error:
                logger.debug("the metadata of %s come from storage: %s", storage_id, error)
        return self._store.metadata(storage_id)

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint and report that it is gone. The chief alone. Raises CheckpointNotOwned for one of another experiment,
        whose files stay."""
        self._only_chief("delete()")
        self.wait()
        if self._outbox.drop(storage_id):
            return
        owner = self._store.owner
        claim = owner and Claim(owner.cluster, owner.experiment, published=self._is_known(storage_id))
        remaining = self._store.delete(storage_id, claim=claim)
        self._report(ReportKind.CHECKPOINT_DELETED, {"uuid": storage_id, "resources": remaining})
        logger.info("deleted checkpoint %s", storage_id)

    def _is_known(self, storage_id: str) -> bool:
        """Whether the master lists it among this experiment's, in whose storage it is; a run's token shows no others."""
        if self._session is None:
            return False
        try:
            return bool(self._session.get(f"/api/v1/checkpoints/{storage_id}", timeout=10))
        except (MasterError, NotFound, Refused):
            return False

    @contextlib.contextmanager
    def _damage_reported(self, storage_id: str) -> Iterator[None]:
        """By the chief, who has the journal: of what another worker finds for itself (``NoSharedDownload``) nobody hears."""
        try:
            yield
        except CheckpointDamaged as error:
            if self._dist.rank == 0 and self._session is not None:
                logger.error("%s; this is reported: the trial's next run begins at an earlier checkpoint", error)
                why = plain_text(error)[:500]
                self._report(ReportKind.CHECKPOINT_DAMAGED, {"uuid": storage_id, "why": why})
            raise

    def _only_chief(self, call: str) -> None:
        if self._dist.rank != 0:
            raise RuntimeError(f"only the chief may call checkpoint.{call}; this is rank {self._dist.rank}")


class DummyCheckpointContext(CheckpointContext):
    """Outside the cluster: checkpoints are stored all the same, and logged instead of reported.

    ``restore_path``, ``download`` and ``get_metadata`` take the path of a checkpoint's directory, too.
    """

    def __init__(self, dist: DistributedContext, storage_manager: CheckpointStore) -> None:
        super().__init__(dist, storage_manager, None, None, lambda kind, data: None)
        self._restore = RestoreOfPaths(dist, storage_manager)

    def get_metadata(self, storage_id: str) -> Dict[str, Any]:
        folder = folder_named(storage_id)
        if folder is None:
            return super().get_metadata(storage_id)
        return read_json(folder / "metadata.json") or {}
