"""Descriptions of searches. A running search is in the engine's memory. The description of one that has ended never changes, and is
kept: folding a search of 100,000 trials takes a second."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from dethpc.domain.facts import Experiment
from dethpc.domain.ports import Snapshot
from dethpc.engine.fold import fold
from dethpc.engine.state import ClusterState
from dethpc.master.parts import Parts
from dethpc.searcher.methods import build
from dethpc.state import queries

_CACHE_SIZE = 8
"""Ended searches that are kept: those that were looked at last."""

_MOST = 1000
"""Trials that are kept of each rung: as many as an answer has by default. It takes some hundred kilobytes of a large search."""


@dataclass(frozen=True, slots=True)
class Described:
    """What ``Searcher.describe`` says with at most ``most`` trials in each rung."""

    search: dict[str, Any]
    most: int

    def cut(self, most: int | None) -> dict[str, Any] | None:
        """The same with at most so many (None: all of them), or None where that takes trials which are not in here."""
        if most is None or most > self.most:
            rungs = [rung for bracket in self.search["brackets"] for rung in bracket["rungs"]]
            whole = all(len(rung["trials"]) < self.most for rung in rungs)
            return self.search if whole else None
        brackets = [
            {**bracket, "rungs": [{**rung, "trials": rung["trials"][:most]} for rung in bracket["rungs"]]}
            for bracket in self.search["brackets"]
        ]
        return {**self.search, "brackets": brackets}

    def shorter(self, most: int) -> Described:
        description = self.cut(most)
        return self if description is None else Described(description, min(self.most, most))


class Searches:
    """Safe from any thread."""

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._lock = threading.Lock()
        self._ended: OrderedDict[tuple[int, float | None], Described] = OrderedDict()

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
        key = experiment.id, experiment.ended_at  # of one that goes on, nothing is kept
        with self._lock:
            cached = self._ended.get(key)
            if cached is not None:
                self._ended.move_to_end(key)
        return None if cached is None else cached.cut(most)

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
            with self._lock:
                self._ended[experiment.id, experiment.ended_at] = described.shorter(_MOST)
                while len(self._ended) > _CACHE_SIZE:
                    self._ended.popitem(last=False)
        return described


def _over(experiment: Experiment) -> bool:
    return experiment.state.terminal and experiment.ended_at is not None
