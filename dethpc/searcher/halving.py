"""Asynchronous successive halving by stopping: the rungs of one bracket.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (Algorithm 2), in the stopping form: a trial
trains on unless, when it reaches a rung, it is not among the best ``1/divisor`` of those that have reached it.
"""

from __future__ import annotations

import math
from array import array
from heapq import heappop, heappush, heappushpop
from typing import NamedTuple


class Rung:
    """The values of the trials that reached one length.

    The best ``1/divisor`` are kept apart from the rest in two heaps, so that a value is compared with the cut-off in constant
    time and taken in in logarithmic time. Values are rank values: smaller is better, infinity for one that cannot be compared.
    """

    __slots__ = ("_best", "_divisor", "_rest", "indexes", "length", "values")

    def __init__(self, length: int, divisor: float) -> None:
        self.length = length
        self.indexes = array("L")  # of trials, in the order of their arrival
        self.values = array("d")
        self._divisor = divisor
        self._best: list[float] = []  # negated, so that the worst of them is at the top
        self._rest: list[float] = []

    def __len__(self) -> int:
        return len(self.values)

    def keeps(self, entered: int) -> int:
        """How many of that many trials go on."""
        return max(int(entered / self._divisor), 1)

    @property
    def cut_off(self) -> float:
        """The worst value that would go on if it came now; infinity while any would."""
        if self.keeps(len(self.values) + 1) > len(self._best):
            return self._rest[0] if self._rest else math.inf
        return -self._best[0]

    def add(self, index: int, value: float) -> None:
        self.indexes.append(index)
        self.values.append(value)
        heappush(self._rest, -heappushpop(self._best, -value) if self._best else value)
        if self.keeps(len(self.values)) > len(self._best):
            heappush(self._best, -heappop(self._rest))

    def remove(self, index: int) -> None:
        """Forget the trial, if it is here. Slow, and rare: invalid hyperparameters are found before a rung is reached."""
        if index not in self.indexes:
            return
        at = self.indexes.index(index)
        del self.indexes[at], self.values[at]
        ordered = sorted(self.values)
        size = self.keeps(len(ordered)) if ordered else 0
        self._best = [-value for value in reversed(ordered[:size])]
        self._rest = ordered[size:]


class Verdict(NamedTuple):
    """What a value means for the trial that reported it: the rungs it enters, and whether it goes on from the last of them."""

    entered: range
    goes_on: bool


class Bracket:
    """One halving: ``rungs`` of them up to ``full_length``, each ``divisor`` times as long as the one before, at least 1."""

    def __init__(self, rungs: int, divisor: float, full_length: int) -> None:
        self.rungs = [Rung(max(int(full_length / divisor ** (rungs - 1 - i)), 1), divisor) for i in range(rungs)]

    @property
    def lengths(self) -> list[int]:
        return [rung.length for rung in self.rungs]

    def judge(self, reached: int, length: float, value: float) -> Verdict:
        """A trial that has entered the first ``reached`` rungs has ``value`` after ``length``; reads only.

        One report may clear several rungs. A value equal to the cut-off goes on; one that cannot be compared never does.
        """
        rung = reached
        while rung < len(self.rungs) and length >= self.rungs[rung].length:
            if rung == len(self.rungs) - 1 or value > self.rungs[rung].cut_off or math.isinf(value):
                return Verdict(range(reached, rung + 1), False)
            rung += 1
        return Verdict(range(reached, rung), True)


def share_trials(max_trials: int, divisor: float, rungs: list[int]) -> list[int]:
    """How many trials each bracket gets: so many that each trains about equally much in all, the remainder to the first.

    ``rungs`` are the brackets' numbers of rungs, most first. When there are more brackets than trials, the last ones get none.
    """
    weights = [divisor ** (r - 1) / r for r in rungs]
    whole = sum(weights)
    shares = [max(1, int(weight / whole * max_trials)) for weight in weights]
    shares[0] += max(0, max_trials - sum(shares))
    while sum(shares) > max_trials and len(shares) > 1:
        shares.pop()
    return shares


def share_concurrency(max_concurrent: int, divisor: float, trials: list[int]) -> list[int]:
    """How many trials of each bracket may be open at a time, given how many it has.

    Split evenly, the remainder to the first ones, each at least one; 0 stands for as many as the smallest bracket has.
    """
    if max_concurrent == 0:
        shares = [max(trials[-1], int(divisor))] * len(trials)
    else:
        even, remainder = divmod(max(max_concurrent, len(trials)), len(trials))
        shares = [even + (i < remainder) for i in range(len(trials))]
    return [min(share, count) for share, count in zip(shares, trials, strict=True)]
