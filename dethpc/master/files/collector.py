"""Checkpoints that their experiment's policy does not keep go when the experiment has ended, and with them those that were deleted.

What is to go is a wish in a row; one task for all that have come together removes the files, on a compute node. Every step may be
done twice: a master that is killed in between begins again with what the rows say. The same tasks bring to their storage what waits
for it in the spool.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.attempts.end_report import plain_text
from dethpc.domain.facts import Checkpoint, Experiment, Row, Task
from dethpc.domain.states import State, TaskKind
from dethpc.engine import events
from dethpc.errors import DethpcError, LeaseHeld, NotFound, RunDirError, ShuttingDown
from dethpc.exec.garbage import BROUGHT, DONE
from dethpc.master.experiments.checkpoint_uses import kept_by_policy, needed_by_rendered
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.policy import chosen
from dethpc.master.files.garbage_runs import OF_POOL, names_of_spooled, of_pool, whose
from dethpc.master.parts import Parts
from dethpc.master.rounds import Rounds
from dethpc.master.watching.journals import source_damaged
from dethpc.rundir.files import read_json
from dethpc.state import queries

log = logging.getLogger(__name__)

EVERY = 30.0
"""Seconds between two looks at what is to go."""
REST, REST_AFTER_FAILURE = 60.0, 3600.0
"""Seconds between the end of one task that removes files and the next."""
BRING_EVERY = 600.0
"""Seconds between two tasks that try whether a storage is back for which checkpoints wait in the spool, at most: the first come
sooner."""
_AT_ONCE = 1000  # rows of one decision: the ledger decides other things in between


class GarbageCollector:
    """Works on a thread of its own."""

    def __init__(self, parts: Parts, control: Control) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._check = parts.lease.check
        self._control = control
        self._taken_in = ""  # the last task whose words were heard
        self._rounds = Rounds(
            "garbage",
            lambda: self.look(time.time()),
            EVERY,
            trouble="checkpoints that are to go could not be looked after",
        )
        self.start, self.stop = self._rounds.start, self._rounds.stop
        parts.ledger.listen(self._heard)

    def wake(self) -> None:
        """Somebody has deleted something. Safe from any thread."""
        self._rounds.wake()

    def _heard(self, rows: Sequence[Row]) -> None:
        """A task has ended: what it removed is told at once."""
        if any(isinstance(row, Task) and row.kind is TaskKind.CHECKPOINT_GC and row.state.terminal for row in rows):
            self.wake()

    def look(self, now: float) -> None:
        """Choose, take in what tasks have removed, and send the next. Raises LeaseHeld, StoreError, OSError."""
        self._check()
        with self._store.read() as connection:
            ended = queries.experiments_to_collect(connection)
        rendered = set(needed_by_rendered(self._home)) if ended else set()  # it lists every run's directory
        for experiment in ended:
            try:
                self._choose(experiment, rendered, now)
            except DethpcError as error:  # one experiment's trouble is its own
                if isinstance(error, (LeaseHeld, ShuttingDown)):
                    raise
                log.warning("the checkpoints of experiment %s stay for now: %s", experiment.id, error)
        self._delete_again(now)
        with self._store.read() as connection:
            removing = bool(queries.removals(connection))
            spooled = names_of_spooled(self._home)
            waiting = queries.spooled(connection, spooled)
            last = queries.last_collection(connection)
        if last is None or last.state.terminal:
            self._go_on(removing, waiting, spooled, last, now)

    def _go_on(
        self, removing: bool, waiting: Sequence[Checkpoint], spooled: Sequence[str], last: Task | None, now: float
    ) -> None:
        if last is not None and (removing or last.id != self._taken_in):
            self._take_in(last, now)
        if removing and (last is None or now >= (last.ended_at or 0.0) + rest_after(last)):
            with self._store.read() as connection:
                pools = queries.pools_of_removals(connection)
            self._send(pools, last, now)
        elif waiting and (last is None or now >= _next_try(last.ended_at or 0.0, _latest(waiting))):
            with self._store.read() as connection:
                pools = queries.pools_of_spooled(connection, spooled)
            self._send(pools, last, now)

    # --- what is to go

    def _choose(self, experiment: Experiment, needed: set[str], now: float) -> None:
        with self._store.read() as connection:
            uuids = chosen(connection, experiment, needed | kept_by_policy(connection))
        if uuids:
            log.info(
                "experiment %s has ended: deleting %d checkpoints that its checkpoint_storage.save_* does not keep",
                experiment.id,
                len(uuids),
            )
        for begin in range(0, max(1, len(uuids)), _AT_ONCE):
            some, last = uuids[begin : begin + _AT_ONCE], begin + _AT_ONCE >= len(uuids)
            self._ledger.do_after(partial(self._collect, experiment.id, some, last, now))

    def _collect(self, experiment_id: int, uuids: Sequence[str], last: bool, now: float) -> events.Event:
        with self._store.read() as connection:
            row = queries.experiment(connection, experiment_id)
            checkpoints = queries.checkpoints_by_id(connection, uuids)
            needed = kept_by_policy(connection)  # again, when nobody can begin to need one in between
        return events.LoadExperiment(row, (), events.CollectGarbage(experiment_id, checkpoints, needed, last, now))

    def _delete_again(self, now: float) -> None:
        """Go on with experiments of which a task could not delete all: a storage that was away comes back."""
        with self._store.read() as connection:
            failed = queries.failed_deletions(connection)
        for experiment_id, (first, last) in failed.items():
            if now < _next_try(last, first):
                continue
            try:
                self._control.delete(experiment_id)
            except DethpcError as error:
                if isinstance(error, (LeaseHeld, ShuttingDown)):
                    raise
                log.warning("experiment %s cannot be deleted now: %s", experiment_id, error)

    # --- what has gone

    def _take_in(self, task: Task, now: float) -> None:
        with self._store.read() as connection:
            runs = queries.runs_of_task(connection, task.id)
        for run in runs:
            try:
                result = read_json(self._home.run(run.id).path / DONE) or {}
                bringing = read_json(self._home.run(run.id).path / BROUGHT) or {}
            except (OSError, RunDirError) as error:  # it is done again
                log.warning("what run %s removed cannot be read: %s", run.id, error)
                continue
            uuids = list(result)
            for begin in range(0, len(uuids), _AT_ONCE):
                self._ledger.do_after(partial(self._removed, result, uuids[begin : begin + _AT_ONCE], now))
            if brought := bringing.get("checkpoints"):
                self._ledger.do_after(partial(self._brought, brought, now))
            for uuid, why in (bringing.get("damaged") or {}).items():
                log.error("%s", why)
                with contextlib.suppress(NotFound):
                    self._ledger.do_after(partial(source_damaged, self._store, uuid, plain_text(why)[:500], now))
        self._taken_in = task.id

    def _brought(self, uuids: Sequence[str], now: float) -> events.Event:
        with self._store.read() as connection:
            return events.CheckpointsBrought(queries.checkpoints_by_id(connection, uuids), now)

    def _removed(self, result: dict[str, Any], uuids: Sequence[str], now: float) -> events.Event:
        with self._store.read() as connection:
            rows = [row for row in queries.checkpoints_by_id(connection, uuids) if row.removing]
        done = {row.uuid: (result[row.uuid]["globs"], result[row.uuid]["left"]) for row in rows}
        refused = {row.uuid: plain_text(str(why)) for row in rows if (why := result[row.uuid].get("why"))}
        return events.FilesRemoved(rows, done, now, refused)

    # --- the next task

    def _send(self, pools: Mapping[str, Experiment], last: Task | None, now: float) -> None:
        failed = of_pool(last) if last is not None and last.state is not State.COMPLETED else None
        if not pools:
            return
        pool, newest = min(
            pools.items(), key=lambda item: (item[0] == failed, -item[1].id)
        )  # another pool's nodes may do
        options = whose(ExperimentConfig.from_json(newest.config))
        self._ledger.do(
            events.CreateTask(
                id=str(uuid4()),
                kind=TaskKind.CHECKPOINT_GC,
                owner=newest.owner,
                user_id=newest.user_id,
                name="Checkpoint GC",
                config={"sbatch_args": options, OF_POOL: pool},
                pool=self._control.pool_for_files(pool),
                slots=0,
                at=now,
            )
        )


def _latest(waiting: Sequence[Checkpoint]) -> float:
    return max(checkpoint.reported_at for checkpoint in waiting)


def _next_try(last: float, since: float) -> float:
    """When a storage is asked again that was away at ``last``, for what has waited ``since`` then: after as long again."""
    return last + min(BRING_EVERY, max(REST, last - since))


def rest_after(task: Task) -> float:
    """Seconds that the next task waits after this one."""
    return REST if task.state is State.COMPLETED else REST_AFTER_FAILURE
