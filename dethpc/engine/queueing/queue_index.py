"""Who wants another run: jobs in the order of their pool's queue, kept sorted with every row."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dethpc.engine.queueing.pools import Kind


class QueueKey(NamedTuple):
    """Smaller comes first. ``number`` orders jobs of the same instant: an experiment's id."""

    priority: int
    position: float  # in the queue, or what is in its place
    created_at: float
    number: int
    queue_id: str


class Queued(Protocol):
    """A row of a job, as far as its place in the queue goes."""

    @property
    def queue_id(self) -> str: ...
    @property
    def queue_number(self) -> int: ...
    @property
    def created_at(self) -> float: ...
    @property
    def priority(self) -> int: ...
    @property
    def queue_position(self) -> float: ...
    @property
    def weight(self) -> float: ...


def key(row: Queued, kind: Kind) -> QueueKey:
    """In a pool that shares: the order among those who have had nothing yet."""
    if kind == "priority":
        return QueueKey(row.priority, row.queue_position, row.created_at, row.queue_number, row.queue_id)
    position = 1 / row.weight if kind == "fair_share" else 0.0
    return QueueKey(0, position, row.created_at, row.queue_number, row.queue_id)


class Place(NamedTuple):
    pool: str
    slots: int  # of one run
    key: QueueKey


@dataclass(slots=True)
class QueueIndex:
    """Keys by pool and by the slots of a run: when a size finds no room, none of that size need be looked at."""

    lists: dict[str, dict[int, list[QueueKey]]] = field(default_factory=dict)
    count: int = 0

    def move(self, before: Place | None, after: Place | None) -> None:
        if before is not None:
            sizes = self.lists[before.pool]
            keys = sizes[before.slots]
            del keys[bisect.bisect_left(keys, before.key)]
            if not keys:
                del sizes[before.slots]
                if not sizes:
                    del self.lists[before.pool]
            self.count -= 1
        if after is not None:
            bisect.insort(self.lists.setdefault(after.pool, {}).setdefault(after.slots, []), after.key)
            self.count += 1

    def of(self, pool: str) -> Mapping[int, list[QueueKey]]:
        return self.lists.get(pool, {})
