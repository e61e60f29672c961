"""Checkpoints after their report: other metadata, and deletion with their files.

The rows are committed first: a checkpoint that the database calls complete has all its files, whenever the master ends. Files
that a dying master leaves behind are in nobody's way; deleting the checkpoint again removes them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dethpc import storage
from dethpc.domain.facts import Checkpoint
from dethpc.domain.states import CheckpointState
from dethpc.domain.trial_config import TrialConfig
from dethpc.engine import events
from dethpc.errors import CheckpointError, Refused
from dethpc.master.durable.ledger import Ledger
from dethpc.rundir.home import Home
from dethpc.state import queries
from dethpc.state.store import SqlStore
from dethpc.storage import CheckpointStore

log = logging.getLogger(__name__)

_EVERYTHING = "**/*"


class Checkpoints:
    """Every method may be called from any thread. Each raises NotFound, Refused, NotSupportedYet (for object stores)."""

    def __init__(self, ledger: Ledger, store: SqlStore, home: Home) -> None:
        self._ledger, self._store, self._home = ledger, store, home

    def change(self, uuids: Sequence[str], change: Callable[[Checkpoint], Checkpoint]) -> None:
        """Put other values in the place of the checkpoints, all of them or none."""

        def read() -> events.Event:
            with self._store.read() as connection:
                found = [queries.checkpoint(connection, uuid) for uuid in dict.fromkeys(uuids)]
            return events.ChangeCheckpoints([change(checkpoint) for checkpoint in found], time.time())

        self._ledger.do_after(read)

    def set_metadata(self, uuid: str, metadata: dict[str, Any]) -> None:
        self.change([uuid], lambda checkpoint: replace(checkpoint, metadata=metadata))

    def set_resources(self, left: dict[str, dict[str, int]]) -> None:
        """Files of checkpoints are gone already; ``left``: uuid -> path -> bytes."""
        self.change(list(left), lambda checkpoint: _with(checkpoint, left[checkpoint.uuid]))

    def delete(self, uuids: Sequence[str]) -> None:
        self.remove(uuids, [_EVERYTHING])

    def remove(self, uuids: Sequence[str], globs: Sequence[str]) -> None:
        """Remove the files that match; without ``globs`` only look what files there are. Both as Determined does."""
        with self._store.read() as connection:
            found = [queries.checkpoint(connection, uuid) for uuid in dict.fromkeys(uuids)]
            origins = queries.checkpoint_origins(connection, found)
        places = {c.uuid: _place(c, TrialConfig.from_json(origins[c.uuid].config).checkpoint_storage) for c in found}
        after = {c.uuid: _left(places[c.uuid], c, globs) for c in found}
        self.change(list(after), lambda checkpoint: _with(checkpoint, after[checkpoint.uuid]))
        for uuid, place in places.items():
            if globs:
                try:
                    place.delete(uuid, globs)
                except OSError as error:
                    raise CheckpointError(f"files of checkpoint {uuid} could not be deleted: {error}") from error


def _place(checkpoint: Checkpoint, configured: dict[str, Any]) -> CheckpointStore:
    """Raises Refused where training code put it elsewhere: what it reports must not decide which files det removes."""
    if place := storage.elsewhere(checkpoint.storage, configured):
        raise Refused(
            f"checkpoint {checkpoint.uuid} is in {place}, where the training code put it, and not in the checkpoint_storage of its "
            "experiment: det leaves files there alone; delete them by hand"
        )
    return storage.build(configured)


def _left(place: CheckpointStore, checkpoint: Checkpoint, globs: Sequence[str]) -> dict[str, int]:
    if _EVERYTHING in globs:
        return {}
    try:
        return place.surviving(checkpoint.uuid, globs)
    except CheckpointError:
        return {}


def _with(checkpoint: Checkpoint, left: dict[str, int]) -> Checkpoint:
    if checkpoint.state is CheckpointState.ACTIVE:
        raise Refused(f"checkpoint {checkpoint.uuid} is being written")
    kept = checkpoint.state in (CheckpointState.COMPLETED, CheckpointState.ERROR)
    state = checkpoint.state if kept and set(left) >= set(checkpoint.resources) else CheckpointState.PARTIALLY_DELETED
    return replace(checkpoint, resources=left, state=state if left else CheckpointState.DELETED)
