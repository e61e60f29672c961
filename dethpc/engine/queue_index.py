"""Who wants another run: experiments in the order of their pool's queue, kept sorted with every row."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dethpc.engine.pools import Kind

Key = tuple[int, float, float, int]
"""Priority, position in the queue or what stands for it, age, id. The last names the experiment."""


class Queued(Protocol):
    """An experiment, as far as its place in the queue goes."""

    @property
    def id(self) -> int: ...
    @property
    def created_at(self) -> float: ...
    @property
    def priority(self) -> int: ...
    @property
    def queue_position(self) -> float: ...
    @property
    def weight(self) -> float: ...


def key(row: Queued, kind: Kind) -> Key:
    """Smaller comes first; in a pool that shares, among those who have had nothing yet."""
    if kind == "priority":
        return (row.priority, row.queue_position, row.created_at, row.id)
    if kind == "fair_share":
        return (0, 1 / row.weight, row.created_at, row.id)
    return (0, 0.0, row.created_at, row.id)


class Place(NamedTuple):
    pool: str
    slots: int  # of one trial
    key: Key


@dataclass(slots=True)
class QueueIndex:
    """QueueIndex by pool and by the slots of a trial: when a size finds no room, none of that size need be looked at."""

    lists: dict[str, dict[int, list[Key]]] = field(default_factory=dict)
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

    def of(self, pool: str) -> Mapping[int, list[Key]]:
        return self.lists.get(pool, {})
