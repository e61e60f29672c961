"""How searches stand. One that goes on is in the engine's memory; of one that has ended only a few are kept, as they were told."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from dethpc.domain.facts import Experiment
from dethpc.engine.fold import fold
from dethpc.engine.state import ClusterState
from dethpc.master.durable.ledger import Ledger
from dethpc.searcher.base import Searcher
from dethpc.searcher.methods import build
from dethpc.state import queries
from dethpc.state.store import SqlStore

_KEPT = 16
"""Searches that have ended and were told of last: to fold one of 10,000 trials anew takes half a second."""

_MOST = 100
"""Trials of each rung in what is kept: it costs some kilobytes."""


class Searches:
    """Safe from any thread."""

    def __init__(self, ledger: Ledger, store: SqlStore) -> None:
        self._ledger, self._store = ledger, store
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, float | None, int], dict[str, Any]] = OrderedDict()

    def described(self, experiment: Experiment, most: int | None) -> dict[str, Any]:
        """What ``Searcher.describe`` says, with at most so many trials in each rung. Raises NotFound."""

        def look(state: ClusterState) -> dict[str, Any] | None:
            known = state.experiments.get(experiment.id)
            return None if known is None else known.searcher.describe(most)

        # A run that was submitted by hand and imported is no searcher's: its trial is not the search's.
        found = self._ledger.look(look) if experiment.kind.submitted else None
        if found is not None:
            return found
        if most is None or most > _MOST:
            return self._folded(experiment).describe(most)
        key = experiment.id, experiment.ended_at, most
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = self._folded(experiment).describe(most)
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def _folded(self, experiment: Experiment) -> Searcher:
        with self._store.read() as connection:
            rows = queries.search(connection, experiment.id)
        known = rows if experiment.kind.submitted else replace(rows, rows={Experiment: rows.of(Experiment)})
        return fold(build, known).experiments[experiment.id].searcher
