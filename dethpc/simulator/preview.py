"""How many trials a search would train, and how long, found by running its searcher on trials that exist only here."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from typing_extensions import assert_never

from dethpc.config.sections.hyperparameters import Space
from dethpc.config.sections.searcher import Method
from dethpc.searcher.base import Action, Continue, Create, Exit, Note, Searcher, Stop, Wait
from dethpc.searcher.methods import build

MAX_TRIALS = 100_000


def preview(section: Method, space: Space, seed: int) -> Counter[float]:
    """How many trials train for each length, in the search's unit; infinity: to their own end.

    Every trial has a quality of its own, drawn at random, and shows it at each length at which the search compares. All trials
    that the searcher allows at once run at once, equally fast. Stops after ``MAX_TRIALS``.
    """
    full = section.full_length()
    return _Rehearsal(build(section, space, seed), math.inf if full is None else float(full), seed).run()


class _Rehearsal:
    def __init__(self, searcher: Searcher, full: float, seed: int) -> None:
        self._searcher = searcher
        self._full = full
        self._random = Random(seed)
        self._quality: dict[int, float] = {}  # of open trials
        self._ahead: dict[int, deque[float]] = {}  # of open trials: the lengths at which they have yet to report
        self._trained: dict[int, float] = {}
        self._training: set[int] = set()
        self._waiting: set[int] = set()
        self._reports: list[tuple[float, int, float]] = []  # (when, trial, length), a heap
        self._now = 0.0

    def run(self) -> Counter[float]:
        self._take(self._searcher.start())
        while self._reports:
            self._now, index, length = heapq.heappop(self._reports)
            if index not in self._quality:
                continue  # stopped meanwhile
            self._trained[index] = length
            self._training.discard(index)
            self._take(self._searcher.validated(index, length, self._quality[index]))
            if index in self._quality and index not in self._waiting and index not in self._training:
                if self._ahead[index]:
                    self._train(index)
                else:
                    self._end(index)
                    self._take(self._searcher.exited(index, Exit.COMPLETED))
        return Counter(self._trained.values())

    def _train(self, index: int) -> None:
        self._training.add(index)
        length = self._ahead[index].popleft()
        heapq.heappush(self._reports, (self._now + length - self._trained[index], index, length))

    def _take(self, actions: Iterable[Action]) -> None:
        """Do everything that was decided together before asking what follows from it, as the engine does."""
        questions: deque[Callable[[], Iterable[Action]]] = deque([lambda: actions])
        while questions:
            for action in questions.popleft()():
                if isinstance(action, Create):
                    self._create(action)
                elif isinstance(action, Note):
                    self._searcher.noted(action.index, action.kind, action.data)
                elif action.index not in self._quality:
                    continue
                elif isinstance(action, Stop):
                    self._end(action.index)
                    questions.append(partial(self._searcher.exited, action.index, Exit.COMPLETED))
                elif isinstance(action, Wait):
                    self._waiting.add(action.index)
                    questions.append(partial(self._searcher.parked, action.index))
                elif isinstance(action, Continue):
                    self._go_on(action)
                else:
                    assert_never(action)

    def _create(self, action: Create) -> None:
        if action.index >= MAX_TRIALS:
            return
        self._quality[action.index] = self._random.random()
        self._ahead[action.index] = deque(action.search.get("lengths") or [self._full])
        self._trained[action.index] = 0.0
        self._searcher.created(action.index, action.hparams, action.search)
        self._train(action.index)

    def _go_on(self, action: Continue) -> None:
        self._ahead[action.index].append(action.length)
        if action.index in self._waiting:
            self._waiting.discard(action.index)
            self._train(action.index)

    def _end(self, index: int) -> None:
        self._waiting.discard(index)
        self._training.discard(index)
        del self._ahead[index]
        self._searcher.closed(index, Exit.COMPLETED, self._quality.pop(index))
