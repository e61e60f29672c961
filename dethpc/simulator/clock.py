"""Virtual time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Clock:
    """``now`` is in seconds. What is to happen at the same moment happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._pushed = 0

    def at(self, at: float, then: Callable[[], None]) -> None:
        """Call ``then`` at that time."""
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, then))

    @property
    def next(self) -> float:
        """When something happens next; infinity: never."""
        return self._heap[0][0] if self._heap else math.inf

    def turn(self) -> None:
        """Go to that time, and let it happen."""
        self.now, _, then = heapq.heappop(self._heap)
        then()
