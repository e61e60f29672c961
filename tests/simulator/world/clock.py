"""Virtual time. What the production code takes for the clocks of its machine moves from one happening to the next."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

BEGIN = 1_800_000_000.0
"""Epoch seconds at the beginning of every story."""


class Clock:
    """``now`` is monotonic. ``skew``: by how much somebody has set the time of day wrong."""

    def __init__(self) -> None:
        self.now, self.skew = 100_000.0, 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), do))

    def turn(self, until: float) -> bool:
        """Let the next thing happen that is due by ``until``. False: there is none."""
        if not self._due or self._due[0][0] > until:
            self.now = max(self.now, until)
            return False
        at, _, do = heapq.heappop(self._due)
        self.now = max(self.now, at)
        do()
        return True

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)

    def wall(self) -> float:
        return BEGIN + self.now + self.skew

    @contextmanager
    def installed(self) -> Iterator[None]:
        with (
            mock.patch("time.time", self.wall),
            mock.patch("time.monotonic", lambda: self.now),
            mock.patch("time.sleep", self.sleep),
        ):
            yield
