"""A store that forgets everything when the process ends."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from dethpc.domain import facts, records
from dethpc.domain.facts import Experiment, Row, Trial
from dethpc.domain.ports import Snapshot
from dethpc.domain.records import Record, WebhookDelivery


class MemoryStore:
    """Implements ``domain.ports.Store`` for one thread. Rows are copied on their way in and out, as a database would."""

    def __init__(self) -> None:
        self._tables: dict[type, dict[tuple[Any, ...], Any]] = {}

    def commit(self, rows: Sequence[Row | Record]) -> None:
        for row in rows:
            table = self._tables.setdefault(type(row), {})
            if isinstance(row, WebhookDelivery):
                table.setdefault(records.key(row), copy.deepcopy(row))
            elif type(row) in records.KEYS:
                table[records.key(row)] = copy.deepcopy(row)
            elif type(row) in facts.ADDED_ONLY:
                table.setdefault(facts.key(row), copy.deepcopy(row))
            else:
                table[facts.key(row)] = copy.deepcopy(row)

    def load(self) -> Snapshot:
        return Snapshot(
            {fact: self.rows(fact) for fact in facts.IN_MEMORY},
            next_experiment_id=max(self._tables.get(Experiment, {(0,): None}))[0] + 1,
            next_trial_id=max(self._tables.get(Trial, {(0,): None}))[0] + 1,
        )

    def put(self, record: Record) -> None:
        self._tables.setdefault(type(record), {})[records.key(record)] = copy.deepcopy(record)

    def drop(self, record: Record) -> None:
        self._tables.get(type(record), {}).pop(records.key(record), None)

    def rows(self, kind: type) -> list[Any]:
        """Copies of all rows of one kind, in order of their first commit."""
        return copy.deepcopy(list(self._tables.get(kind, {}).values()))

    def close(self) -> None:
        pass
