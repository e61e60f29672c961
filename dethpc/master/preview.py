"""How many trials a search would train, and how long, found by running its searcher on trials that exist only here."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from dethpc.searcher import build
from dethpc.searcher.base import Action, Create, Exit, Note, Searcher, Stop

Length = float
MAX_TRIALS = 100_000


def preview(searcher_section: Mapping[str, Any], hyperparameters: Mapping[str, Any], seed: int) -> Counter[Length]:
    """How many trials train for each length, in the search's unit; infinity: to their own end.

    Every trial has a quality of its own, drawn at random, and shows it whenever the search would compare. All trials that the
    searcher allows at once run at once, equally fast. Stops after ``MAX_TRIALS``.
    """
    return _Rehearsal(build(searcher_section, hyperparameters, seed), milestones(searcher_section), seed).run()


def unit(searcher_section: Mapping[str, Any]) -> str:
    """The unit that the search's lengths are in; a bare length has none."""
    for name in ("max_length", "length_per_round", "budget"):
        length = searcher_section.get(name)
        if isinstance(length, Mapping):
            return str(next(iter(length)))
    return str(searcher_section.get("time_metric") or "units")


def milestones(searcher_section: Mapping[str, Any]) -> list[Length]:
    """The lengths at which trials report, increasing: all where a search may compare them, and the last."""
    per_round = _count(searcher_section.get("length_per_round"))
    if per_round is not None:
        return [per_round * n for n in range(1, int(searcher_section.get("num_rounds") or 1) + 1)]
    full = _count(searcher_section.get("max_time"))
    if full is None:
        full = _count(searcher_section.get("max_length"))
    if full is None:
        return [float("inf")]
    rungs = int(searcher_section.get("max_rungs") or searcher_section.get("num_rungs") or 1)
    divisor = float(searcher_section.get("divisor") or 4)
    return sorted({max(full / divisor**n, 1.0) for n in range(rungs)})


def _count(length: Any) -> float | None:
    if isinstance(length, Mapping):
        length = next(iter(length.values()), None)
    return None if length is None else float(length)


class _Rehearsal:
    def __init__(self, searcher: Searcher, points: list[Length], seed: int) -> None:
        self._searcher = searcher
        self._points = points
        self._random = Random(seed)
        self._quality: dict[int, float] = {}  # of open trials
        self._reports: list[tuple[float, int, int]] = []  # (when, trial, which point), a heap
        self._now = 0.0
        self._trained: Counter[Length] = Counter()

    def run(self) -> Counter[Length]:
        self._take(self._searcher.start(), 0.0)
        while self._reports:
            self._now, index, point = heapq.heappop(self._reports)
            if index not in self._quality:
                continue  # stopped meanwhile
            length = self._points[point]
            self._take(self._searcher.validated(index, length, self._quality[index]), length)
            if index not in self._quality:
                continue
            if point + 1 == len(self._points):
                self._close(index, length)
            else:
                self._report(index, point + 1, length)
        return self._trained

    def _report(self, index: int, point: int, trained: Length) -> None:
        heapq.heappush(self._reports, (self._now + self._points[point] - trained, index, point))

    def _take(self, actions: Iterable[Action], length: Length) -> None:
        pending = deque(actions)
        while pending:
            action = pending.popleft()
            if isinstance(action, Create):
                if action.index < MAX_TRIALS:
                    self._quality[action.index] = self._random.random()
                    self._searcher.created(action.index, action.hparams, action.search)
                    self._report(action.index, 0, 0.0)
            elif isinstance(action, Note):
                self._searcher.noted(action.index, action.kind, action.data)
            elif isinstance(action, Stop) and action.index in self._quality:
                self._searcher.stopped(action.index)
                pending.extend(self._closed(action.index, length))

    def _close(self, index: int, length: Length) -> None:
        self._take(self._closed(index, length), length)

    def _closed(self, index: int, length: Length) -> list[Action]:
        del self._quality[index]
        self._trained[length] += 1
        self._searcher.closed(index, Exit.COMPLETED)
        return self._searcher.exited(index, Exit.COMPLETED)
