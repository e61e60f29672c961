"""Descriptions of searches. A running search is in the engine's memory; the description of one that has ended never changes, and is
cached."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from dethpc.domain.facts import Experiment
from dethpc.domain.ports import Snapshot
from dethpc.engine.fold import fold
from dethpc.engine.state import ClusterState
from dethpc.errors import NotFound
from dethpc.master.experiments import ended_search
from dethpc.master.experiments.ended_search import Described
from dethpc.master.parts import Parts
from dethpc.searcher.methods import build
from dethpc.state import queries

_KEPT = 16
"""Searches that have ended and were told of last."""

_MOST = 100
"""Trials of each rung in what is kept in memory: it costs some kilobytes."""

LARGE = 1000
"""Trials of a search that is worth a file when it has ended: to fold a smaller one takes some milliseconds."""


class Searches:
    """Safe from any thread."""

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[int, float | None], Described] = OrderedDict()

    def described(self, experiment: Experiment, most: int | None) -> dict[str, Any]:
        """What ``Searcher.describe`` says, with at most so many trials in each rung. Raises NotFound."""

        def look(state: ClusterState) -> dict[str, Any] | None:
            running = state.experiments.get(experiment.id)
            # What is to be deleted came into memory without its search's notes.
            if running is None or not running.row.state.keeps_files:
                return None
            return running.searcher.describe(most)

        # A run that was submitted by hand and imported is no searcher's: its trial is not the search's.
        description = self._ledger.look(look) if experiment.kind.submitted else None
        if description is None:
            description = self._remembered(experiment, most)
        if description is None:
            description = self._computed(experiment.id).cut(most)
        assert description is not None, "what was computed has every trial"
        return description

    def _remembered(self, experiment: Experiment, most: int | None) -> dict[str, Any] | None:
        if not _over(experiment):
            return None
        key = experiment.id, experiment.ended_at
        with self._lock:
            cached = self._told.get(key)
            if cached is not None:
                self._told.move_to_end(key)
        description = None if cached is None else cached.cut(most)
        if description is None and (stored := ended_search.read(self._home, experiment)) is not None:
            self._remember(experiment, stored)
            description = stored.cut(most)
        return description

    def _computed(self, experiment_id: int) -> Described:
        """With every trial. What is remembered of it belongs to the rows that it was computed from, whatever happened meanwhile."""
        with self._store.read() as connection:
            experiment = queries.experiment(connection, experiment_id)
            if experiment.kind.submitted:
                rows = queries.search(connection, experiment_id)
            else:
                rows = Snapshot({Experiment: [experiment]}, next_experiment_id=1, next_trial_id=1)
        searcher = fold(build, rows).experiments[experiment_id].searcher
        described = Described(searcher.describe(), searcher.created_count + 1)
        if _over(experiment):
            self._remember(experiment, described)
            if searcher.created_count >= LARGE:
                self._keep(experiment, described)
        return described

    def _keep(self, experiment: Experiment, described: Described) -> None:
        ended_search.write(self._home, experiment, described)
        try:
            with self._store.read() as connection:
                gone = not queries.experiment(connection, experiment.id).state.keeps_files
        except NotFound:
            gone = True
        if gone:  # the job that removes its files may have been here already
            ended_search.drop(self._home, experiment.id)

    def _remember(self, experiment: Experiment, described: Described) -> None:
        key = experiment.id, experiment.ended_at
        with self._lock:
            self._told[key] = described.shorter(_MOST)
            self._told.move_to_end(key)
            while len(self._told) > _KEPT:
                self._told.popitem(last=False)


def _over(experiment: Experiment) -> bool:
    return experiment.state.terminal and experiment.ended_at is not None
