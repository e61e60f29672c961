"""Resource pools as decisions see them: how a pool's queue is ordered, and what could start in it now."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["priority", "fair_share", "fifo"]

TURN = 60.0
"""Seconds that a run is taken to last in a pool of which nothing has been seen yet."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the site says of a pool's queue. ``window``: runs that wait in the scheduler's queue; None: as many as make sense."""

    kind: Kind = "priority"
    window: int | None = None


@dataclass(slots=True)
class Free:
    """Slots that nobody holds, node by node. ``size``: slots of the largest node."""

    size: int
    slots: list[int]  # of each node that has some, sorted

    @classmethod
    def of(cls, size: int, counts: Iterable[Sequence[int]]) -> Free:
        """``counts``: pairs of free slots and how many nodes have as many."""
        return cls(size, sorted(free for free, nodes in counts for _ in range(nodes)))

    def place(self, slots: int) -> bool:
        """Take the slots if they are there: on one node, or on whole nodes where one has too few."""
        if slots <= max(1, self.size):
            return slots == 0 or self._take(slots, 1)
        nodes, rest = divmod(slots, self.size)
        return self._take(self.size, nodes + (rest > 0))

    def _take(self, slots: int, nodes: int) -> bool:
        at = bisect.bisect_left(self.slots, slots)  # the fullest nodes that still have room
        if at + nodes > len(self.slots):
            return False
        chosen = self.slots[at : at + nodes]
        del self.slots[at : at + nodes]
        for free in chosen:
            if free > slots:
                bisect.insort(self.slots, free - slots)
        return True
