"""What saving alone and saving together share: names, metadata, and what follows when the files are written."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from dethpc.core._background import Background
from dethpc.core._encode import jsonable, shown
from dethpc.domain.reports import MOST_STEPS, ReportKind
from dethpc.errors import CheckpointError
from dethpc.rundir.tree import Tree
from dethpc.storage import CheckpointStore
from dethpc.storage.base import Selector
from dethpc.storage.manifest import listing

logger = logging.getLogger("dethpc.core")

METADATA = "metadata.json"


class Finishing:
    """Publishes what has been written, now or beside the training, reports it, and brings the checksums that it still lacks."""

    def __init__(
        self,
        store: CheckpointStore,
        background: Background,
        rank: int,
        section: Optional[Dict[str, Any]],
        report: Callable[[ReportKind, Dict[str, Any]], Any],
        on_cluster: bool,
    ) -> None:
        self._store, self._background, self._rank = store, background, rank
        self._section, self._report, self._on_cluster = section, report, on_cluster

    def finish(self, publish: Callable[[], List[str]], storage_id: str, beside: bool) -> None:
        """``publish`` returns what it leaves without checksums, for this worker to bring in the background. ``beside``: publish in
        the background, too."""
        if beside:
            self._background.start(lambda: self._add_checksums(storage_id, publish()))
        elif without := publish():
            self._background.start(lambda: self._add_checksums(storage_id, without))

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

    def report(self, storage_id: str, files: Dict[str, int], metadata: Dict[str, Any], started: float) -> None:
        """``started``: by the monotonic clock, when saving began. From what it took the next run knows when to stop."""
        if not self._on_cluster:
            logger.info("stored checkpoint %s", storage_id)
            return
        self._report(
            ReportKind.CHECKPOINT,
            {
                "uuid": storage_id,
                "steps_completed": int(metadata["steps_completed"]),
                "metadata": metadata,
                "resources": files,
                "storage": self._section,
                "seconds": round(time.monotonic() - started, 3),
            },
        )
        logger.info("stored checkpoint %s", storage_id)

    def _add_checksums(self, storage_id: str, paths: List[str]) -> None:
        if paths:
            try:
                self._store.add_checksums(storage_id, paths, self._rank)
            except (OSError, CheckpointError) as error:  # somebody has deleted it; or else a reader will see
                logger.warning("checkpoint %s stays without checksums for some files: %s", storage_id, error)


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
        raise ValueError(f"a checkpoint's metadata must have an integer 'steps_completed'; found {steps!r}")


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
