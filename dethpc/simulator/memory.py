"""A store that forgets everything when the process ends."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from dethpc.domain.facts import (
    Attempt,
    Checkpoint,
    Experiment,
    Metric,
    NodeHealth,
    PoolState,
    Row,
    Run,
    SearchNote,
    Trial,
)
from dethpc.domain.ports import Snapshot


class MemoryStore:
    """Implements ``domain.ports.Store`` for one thread. Rows are copied on their way in and out, as a database would."""

    def __init__(self) -> None:
        self._tables: dict[type, dict[Any, Any]] = {}

    def commit(self, rows: Sequence[Row]) -> None:
        for row in rows:
            table = self._tables.setdefault(type(row), {})
            if isinstance(row, (Metric, SearchNote)):
                table.setdefault(_key(row), copy.deepcopy(row))
            else:
                table[_key(row)] = copy.deepcopy(row)

    def load(self) -> Snapshot:
        return Snapshot(
            experiments=self.rows(Experiment),
            trials=self.rows(Trial),
            runs=self.rows(Run),
            attempts=self.rows(Attempt),
            checkpoints=self.rows(Checkpoint),
            notes=self.rows(SearchNote),
            nodes=self.rows(NodeHealth),
            next_experiment_id=max(self._tables.get(Experiment, {}), default=0) + 1,
            next_trial_id=max(self._tables.get(Trial, {}), default=0) + 1,
            pools=self.rows(PoolState),
        )

    def rows(self, kind: type) -> list[Any]:
        """Copies of all rows of one kind, in order of their first commit."""
        return copy.deepcopy(list(self._tables.get(kind, {}).values()))

    def metrics(
        self, trial_ids: Sequence[int], group: str | None = None, *, after_steps: int = -1, limit: int | None = None
    ) -> Iterable[Metric]:
        attempts: dict[Any, Attempt] = self._tables.get(Attempt, {})
        wanted = set(trial_ids)
        found = []
        for metric in self._tables.get(Metric, {}).values():
            void_after = attempts[metric.run_id, metric.attempt].void_after
            if metric.trial_id not in wanted or metric.steps_completed <= after_steps:
                continue
            if (group is None or metric.group == group) and (void_after is None or metric.seq <= void_after):
                found.append(metric)
        found.sort(key=lambda metric: metric.trial_id)
        return copy.deepcopy(found[:limit])

    def close(self) -> None:
        pass


def _key(row: Row) -> Any:
    if isinstance(row, Attempt):
        return (row.run_id, row.number)
    if isinstance(row, Metric):
        return (row.run_id, row.attempt, row.seq)
    if isinstance(row, SearchNote):
        return (row.experiment_id, row.seq)
    if isinstance(row, (NodeHealth, PoolState)):
        return row.name
    return row.uuid if isinstance(row, Checkpoint) else row.id
