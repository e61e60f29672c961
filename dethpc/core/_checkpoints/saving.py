"""Names, metadata and reports of checkpoints, shared by saving alone and saving together."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, TypeVar

from dethpc.core._checkpoints.background import Background
from dethpc.core._encode import jsonable, shown
from dethpc.domain.attempts.end_report import plain_text
from dethpc.domain.reports import MOST_STEPS, STORAGE_AWAY, ReportKind
from dethpc.errors import CheckpointError
from dethpc.rundir.filesystem import FULL
from dethpc.rundir.tree import Tree
from dethpc.storage import CheckpointStore
from dethpc.storage.base import Selector
from dethpc.storage.manifest import listing

logger = logging.getLogger("dethpc.core")

METADATA = "metadata.json"

_LARGE = 1 << 20  # bytes

_FIRST_PAUSE, _LONGEST_PAUSE, _MOST_PATIENCE = 1.0, 60.0, 1800.0  # seconds

T = TypeVar("T")

Write = Callable[[Path], object]
"""Writes files into a directory that it is given."""


class Part(NamedTuple):
    """What is left to do for one worker in a published checkpoint: files to bring checksums of, and files large enough that it is
    worth looking whether the checkpoint before has them, too."""

    without_checksums: List[str]
    large: List[str]


class Finishing:
    """Publishes what has been written, now or beside the training, reports it, and settles what can wait.

    ``latest``: the checkpoint that the training began at, or None.
    """

    def __init__(
        self,
        store: CheckpointStore,
        background: Background,
        rank: int,
        section: Optional[Dict[str, Any]],
        report: Callable[[ReportKind, Dict[str, Any]], Any],
        on_cluster: bool,
        latest: Optional[str],
    ) -> None:
        self._store, self._background, self._rank = store, background, rank
        self._section, self._report, self._on_cluster = section, report, on_cluster
        self._latest = latest

    def patiently(self, storage_id: str, call: Callable[[], T]) -> T:
        """What ``call`` returns, which brings staged files to the store. While the store is away they stay staged, and it is called
        again, for up to ``_MOST_PATIENCE`` seconds."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                return call()
            except OSError as error:
                if not self._store.may_come_back(error) or time.monotonic() - began > _MOST_PATIENCE:
                    raise
                logger.warning(
                    "checkpoint %s cannot go to %s now (%s); it stays on this machine and is tried again in %d s",
                    storage_id, self._store, error, pause,
                )  # fmt: skip
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @contextlib.contextmanager
    def full_storage_told(self) -> Iterator[None]:
        """Report why the training ends, where it does, that cannot save because its storage has no room: no fault of its own."""
        try:
            yield
        except Exception as error:
            self.tell_if_full(error)
            raise

    def tell_if_full(self, error: Optional[BaseException]) -> None:
        """As above, for what was raised while a checkpoint was saved, and is still staged. Many libraries do not say why they could
        not write, so the store is tried. For the chief."""
        why = (_full(error, str(self._store)) or self._store.full()) if isinstance(error, Exception) else ""
        if why and self._rank == 0:
            logger.error(
                "the checkpoint cannot be stored: %s; once there is room, the trial resumes from the one before", why
            )
            if self._on_cluster:
                self._report(ReportKind.EARLY_EXIT, {"reason": f"{STORAGE_AWAY}{plain_text(why)[:500]}"})

    def finish(self, publish: Callable[[], Part], storage_id: str, in_background: bool) -> None:
        """``publish`` returns this worker's part, which is settled in the background. ``beside``: publish there, too."""
        if in_background:
            self._background.start(lambda: self._settle(storage_id, publish()))
        else:
            part = publish()
            if part.without_checksums or part.large:
                self._background.start(lambda: self._settle(storage_id, part))

    def checked(self, metadata: Optional[Dict[str, Any]]) -> Dict[str, Any]:
        """Metadata as they are stored. Raises TypeError for what JSON has no form for; on the cluster, where the next run goes on
        from there, ValueError without ``steps_completed`` from 0 to 2**63 - 1."""
        plain: Dict[str, Any] = jsonable(metadata or {}, "metadata")
        try:
            _check_steps(plain.get("steps_completed"))
        except ValueError as error:
            if self._on_cluster:
                raise
            logger.warning("on a cluster this checkpoint would be refused: %s", error)
        return plain

    def report(
        self, storage_id: str, files: Dict[str, int], metadata: Dict[str, Any], started: Optional[float]
    ) -> None:
        """``started``: by the monotonic clock, when saving began. From what it took the next run knows when to stop. None: it says
        nothing of how long the next one takes."""
        if self._on_cluster:
            seconds = None if started is None else round(time.monotonic() - started, 3)
            self._report(ReportKind.CHECKPOINT, {**self._fields(storage_id, files, metadata), "seconds": seconds})
        logger.info("stored checkpoint %s", storage_id)

    def report_in_fallback(self, storage_id: str, files: Dict[str, int], metadata: Dict[str, Any]) -> None:
        """It can be read, and outlives the job, but is not where it belongs."""
        fallback = str(self._store.fallback)
        if self._on_cluster:
            report = {**self._fields(storage_id, files, metadata), "seconds": None, "spool": fallback}
            self._report(ReportKind.CHECKPOINT, report)
        logger.info("checkpoint %s is in %s until %s answers", storage_id, fallback, self._store)

    def _fields(self, storage_id: str, files: Dict[str, int], metadata: Dict[str, Any]) -> Dict[str, Any]:
        if files.keys() <= {METADATA}:
            logger.warning(
                "checkpoint %s holds its metadata alone: the training has written no file into it", storage_id
            )
        return {
            "uuid": storage_id,
            "steps_completed": int(metadata["steps_completed"]),
            "metadata": metadata,
            "resources": files,
            "storage": self._section,
        }

    def report_waiting(self, storage_id: str, files: Dict[str, int], metadata: Dict[str, Any], why: str) -> None:
        if self._on_cluster:
            steps = int(metadata["steps_completed"])
            data = {"uuid": storage_id, "steps_completed": steps, "metadata": metadata, "resources": files, "why": why}
            self._report(ReportKind.CHECKPOINT_WAITING, data)

    def report_lost(self, storage_id: str, why: str) -> None:
        if self._on_cluster:
            self._report(ReportKind.CHECKPOINT_DELETED, {"uuid": storage_id, "resources": {}, "why": why})

    def unsummed(self, storage_id: str) -> List[str]:
        """Files of a published checkpoint that have no checksums yet. It is there, also when nobody can say that just now."""
        try:
            return self._store.without_checksums(storage_id)
        except (OSError, CheckpointError) as error:
            logger.warning("nobody can say which files of checkpoint %s have no checksums: %s", storage_id, error)
            return []

    def _settle(self, storage_id: str, part: Part) -> None:
        """Bring the checksums that are missing, and share what the checkpoint before has, too."""
        earlier, self._latest = self._latest, storage_id
        if part.without_checksums:
            try:
                self._store.add_checksums(storage_id, part.without_checksums, self._rank)
            except (OSError, CheckpointError) as error:  # somebody has deleted it; or else a reader will see
                logger.warning("checkpoint %s stays without checksums for some files: %s", storage_id, error)
                return
        if earlier is not None and part.large:
            try:
                saved = self._store.share(storage_id, earlier, part.large)
            except (OSError, CheckpointError) as error:
                logger.debug("checkpoint %s shares nothing with %s: %s", storage_id, earlier, error)
            else:
                if saved:
                    logger.info(
                        "checkpoint %s shares %d bytes with %s: they have not changed", storage_id, saved, earlier
                    )


def _full(error: Optional[BaseException], store: str) -> str:
    """Whether a full disk or quota of the store is behind ``error``, in words; "" also where another disk is full."""
    seen: List[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, OSError) and error.errno in FULL:
            place = "" if error.filename is None else os.path.realpath(os.fsdecode(error.filename))
            if not place or place.startswith(os.path.realpath(store)):
                return f"{store}: {error.strerror}"
        seen.append(error)
        error = error.__cause__ or error.__context__
    return ""


def large_of(names: Iterable[str], sizes: Dict[str, int]) -> List[str]:
    return [name for name in names if sizes[name] >= _LARGE]


def new_id() -> str:
    import uuid

    return str(uuid.uuid4())


def _check_steps(steps: Any) -> None:
    if isinstance(steps, float) and steps.is_integer():
        steps = int(steps)
    if isinstance(steps, int) and not 0 <= steps <= MOST_STEPS:
        raise ValueError(
            f"a checkpoint's 'steps_completed' is a whole number from 0 to 2**63 - 1; found {shown(steps)}: nothing was stored"
        )
    if isinstance(steps, bool) or not isinstance(steps, int):
        instead = "" if steps is None else f", not {steps!r}"
        raise ValueError(
            f"a checkpoint's metadata must have an integer 'steps_completed'{instead}: how far it was trained"
        )


def write_metadata(staged: Path, metadata: Dict[str, Any]) -> int:
    """Returns the bytes written."""
    with Tree(staged) as tree, tree.write(METADATA) as file:
        return file.write(json.dumps(metadata, indent=2).encode())


def selected(source: Path, selector: Optional[Selector]) -> Dict[str, int]:
    """What ``selector`` wants of a directory, without its metadata.json: the checkpoint gets one from the metadata given."""
    if not source.exists():
        raise FileNotFoundError(f"there is no directory {source}")
    if not source.is_dir():
        raise NotADirectoryError(f"{source} is not a directory")
    return {n: s for n, s in listing(source).items() if n != METADATA and (selector is None or selector(n))}
