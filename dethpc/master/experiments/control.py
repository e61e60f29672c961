"""What owners ask of their experiments and of the queue, also of experiments that ended before this master started."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dethpc.domain.facts import Row
from dethpc.engine import events
from dethpc.engine.turns import order
from dethpc.errors import Refused
from dethpc.master.durable.ledger import Ledger
from dethpc.master.runs.admission import Admission
from dethpc.state import queries
from dethpc.state.store import SqlStore


class Control:
    """Every method may be called from any thread, and raises NotFound, Refused, NotSupportedYet and ConfigError."""

    def __init__(self, ledger: Ledger, store: SqlStore, admission: Admission) -> None:
        self._ledger, self._store, self._admission = ledger, store, admission

    def do(self, event: events.Event) -> list[Row]:
        """Decide and commit; the rows that changed."""
        if isinstance(event, events.OfExperiment) and event.experiment_id not in self._ledger.state.experiments:
            with self._store.read() as connection:
                self._ledger.do(events.LoadExperiment(queries.experiment(connection, event.experiment_id)))
        if isinstance(event, events.KillTrial) and self._ledger.state.trial(event.trial_id) is None:
            with self._store.read() as connection:
                trial = queries.trial(connection, event.trial_id)
            raise Refused(f"trial {trial.id} has ended already ({trial.state.value})")
        return self._ledger.do(event)

    def queue_order(self, pool: str) -> list[str]:
        """Queue ids of the pool's jobs, the next one to be served first."""
        return self._ledger.look(lambda state: [job.id for job in order(state, pool, time.time())])

    def update_queue(self, changes: Sequence[events.QueueChange]) -> None:
        """Change jobs of the queue, all or none. Raises ConfigError where a job's trials do not fit their new pool."""
        for change in changes:
            known = self._ledger.state.experiments.get(change.experiment_id)
            if change.pool is not None and known is not None:
                self._admission.check(known.config.in_pool(change.pool))
        self._ledger.do(events.UpdateQueue(changes, time.time()))
