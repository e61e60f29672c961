"""Changes to reported checkpoints: their metadata, and deletion with their files.

The rows are committed first: a checkpoint that is COMPLETED in the database has all its files, whenever the master ends. A task
then removes the files according to the rows: see ``master.files.collector``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dethpc import storage
from dethpc.domain.facts import EVERYTHING, Checkpoint
from dethpc.domain.states import CheckpointState
from dethpc.domain.trial_config import TrialConfig
from dethpc.engine import events
from dethpc.engine.garbage import without
from dethpc.errors import CheckpointNotFound, CheckpointNotOwned, MasterError, Refused
from dethpc.master.experiments.checkpoint_uses import needed_by_models, needed_by_rendered
from dethpc.master.experiments.claims import Claims
from dethpc.master.experiments.policy import Policies
from dethpc.master.parts import Parts
from dethpc.rundir.home import Home
from dethpc.state import queries
from dethpc.storage import CheckpointStore
from dethpc.storage.ownership import Claim


class Checkpoints:
    """Every method may be called from any thread. Each raises NotFound, Refused, NotSupportedYet (for object stores). ``wake``:
    there are files for a task to remove."""

    def __init__(self, parts: Parts, wake: Callable[[], None]) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._cluster_id = parts.cluster_id
        self._wake = wake
        self.policies = Policies(parts, wake)

    def change(self, uuids: Sequence[str], change: Callable[[Checkpoint], Checkpoint]) -> None:
        """Put other values in the place of the checkpoints, all of them or none."""
        rendered = needed_by_rendered(self._home)

        def read() -> events.Event:
            with self._store.read() as connection:
                checkpoints = [queries.checkpoint(connection, uuid) for uuid in dict.fromkeys(uuids)]
                needed = rendered | needed_by_models(connection)
            return events.ChangeCheckpoints([change(checkpoint) for checkpoint in checkpoints], time.time(), needed)

        self._ledger.do_after(read)

    def set_metadata(self, uuid: str, metadata: dict[str, Any]) -> None:
        self.change([uuid], lambda checkpoint: replace(checkpoint, metadata=metadata))

    def set_resources(self, resources: dict[str, dict[str, int]]) -> None:
        """Files of checkpoints are gone already; ``resources``: uuid -> path -> bytes."""
        self.change(list(resources), lambda checkpoint: _without(checkpoint, resources[checkpoint.uuid], []))

    def delete(self, uuids: Sequence[str]) -> None:
        self.remove(uuids, [EVERYTHING])

    def remove(self, uuids: Sequence[str], globs: Sequence[str]) -> None:
        """A task shall remove the files that match; without ``globs`` only look what files there are. Both as Determined does."""
        if any("\n" in glob for glob in globs):
            raise Refused("a glob is one line")
        with self._store.read() as connection:
            checkpoints = [queries.checkpoint(connection, uuid) for uuid in dict.fromkeys(uuids)]
            origins = queries.checkpoint_origins(connection, checkpoints)
            ids = {c.experiment_id for c in checkpoints}
            experiments = {id: queries.experiment(connection, id) for id in ids}
        claims = Claims(self._home, self._cluster_id)
        sections = {c.uuid: TrialConfig.from_json(origins[c.uuid].config).checkpoint_storage for c in checkpoints}
        places = {c.uuid: _place(c, sections[c.uuid], self._home) for c in checkpoints}
        after = {
            c.uuid: _files(places[c.uuid], c, globs, claims.of(experiments[c.experiment_id], c) if globs else None)
            for c in checkpoints
        }
        self.change(list(after), lambda checkpoint: _without(checkpoint, after[checkpoint.uuid], globs))
        if globs:
            self._wake()

    def remove_tensorboard(self, experiment_id: int) -> None:
        """Remove what an experiment that has ended wrote for TensorBoard, from the machine of the master."""
        from dethpc.tensorboard.build import get_experiment_sync_path  # it loads what trials are trained with

        with self._store.read() as connection:
            row = queries.experiment(connection, experiment_id)
        if not row.state.terminal:
            raise Refused(
                f"experiment {experiment_id} is {row.state.value}: its TensorBoard files are deleted when it has ended"
            )
        section = TrialConfig.from_json(row.config).checkpoint_storage
        place = storage.build(section, spool=self._home.spool)
        if section.get("type") == "shared_fs" and not os.path.isdir(str(place)):
            raise Refused(f"checkpoint storage {place} is not there on {os.uname().nodename}, where the master runs")
        folder = str(get_experiment_sync_path(self._cluster_id, str(experiment_id)))
        try:
            place.remove_folder(folder)
        except OSError as error:
            raise Refused(f"{folder} in {place} cannot be removed: {error}") from None


def _place(checkpoint: Checkpoint, configured: dict[str, Any], home: Home) -> CheckpointStore:
    """Raises Refused where training code put it elsewhere: what it reports must not decide which files det removes."""
    if place := storage.elsewhere(checkpoint.storage, configured):
        raise Refused(
            f"checkpoint {checkpoint.uuid} is in {place}, where the training code put it, and not in the checkpoint_storage of its "
            "experiment: det leaves files there alone; delete them by hand"
        )
    return storage.build(configured, spool=home.spool)


def _files(place: CheckpointStore, checkpoint: Checkpoint, globs: Sequence[str], claim: Claim | None) -> dict[str, int]:
    """Raises Refused, MasterError and CheckpointError where it cannot be seen: what is not mounted here, or away, is not gone.
    ``claim``: of who deletes; the task that deletes whole checkpoints compares it itself."""
    if EVERYTHING in globs:
        return {}
    waiting = checkpoint.removing.splitlines()  # what is going already is still there
    try:
        if claim is not None:
            place.check_claim(checkpoint.uuid, claim)
        files = place.surviving(checkpoint.uuid, globs)
        return (
            {path: files[path] for path in place.surviving(checkpoint.uuid, waiting) if path in files}
            if waiting
            else files
        )
    except CheckpointNotOwned as error:
        raise Refused(
            f"{error}; its files are left in place: det checkpoint audit shows what to do with them"
        ) from None
    except CheckpointNotFound:
        if not place.may_be_away and not os.path.isdir(str(place)):
            raise Refused(
                f"checkpoint storage {place} is not there on {os.uname().nodename}, where the master runs"
            ) from None
        return {}
    except OSError as error:
        raise MasterError(f"the master cannot read {place}: {error}") from error


def _without(checkpoint: Checkpoint, resources: dict[str, int], globs: Sequence[str]) -> Checkpoint:
    if checkpoint.state is CheckpointState.ACTIVE:
        raise Refused(f"checkpoint {checkpoint.uuid} is being written")
    return without(checkpoint, resources, globs)
