"""Asynchronous successive halving by stopping, one bracket.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (Algorithm 2), in the stopping form: a trial
trains on unless, when it reaches a rung, it is not among the best ``1/divisor`` of those that reached it before.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """What a value means for the trial that reported it. ``entered`` lists (rung, rank value) pairs to remember."""

    entered: list[tuple[int, float]]
    stop: str  # why it must stop; empty: it goes on


class Bracket:
    """The rungs of one bracket.

    ``lengths``: how long a trial has trained when it reaches each rung, in the searcher's unit, increasing; the last one is the
    full length. Values are rank values: smaller is better, infinity for NaN.
    """

    def __init__(self, rungs: int, divisor: float, full_length: float) -> None:
        self.divisor = divisor
        self.lengths = [max(full_length / divisor ** (rungs - 1 - i), 1.0) for i in range(rungs)]
        self.values: list[array[float]] = [array("d") for _ in range(rungs)]
        self.next_rung: dict[int, int] = {}  # trial index -> the rung that it has not reached yet

    def judge(self, index: int, length: float, value: float) -> Verdict:
        """Trial ``index`` has ``value`` after ``length``. Reads only; a report may clear several rungs at once."""
        entered: list[tuple[int, float]] = []
        for rung in range(self.next_rung.get(index, 0), len(self.lengths)):
            if length < self.lengths[rung]:
                break
            entered.append((rung, value))
            if rung == len(self.lengths) - 1:
                return Verdict(entered, "trained to the full length")
            values = self.values[rung]
            rank = bisect_right(values, value)  # of equals, the one that came first is ahead
            kept = max(1, int((len(values) + 1) / self.divisor))
            if rank >= kept or math.isinf(value):
                return Verdict(entered, self._why(rung, value, values, kept))
        return Verdict(entered, "")

    def _why(self, rung: int, value: float, values: array[float], kept: int) -> str:
        if math.isinf(value):
            return f"rung {rung}: no usable value"
        return f"rung {rung}: rank {bisect_right(values, value) + 1} of {len(values) + 1}, the best {kept} go on"

    def cut_off(self, rung: int) -> float | None:
        """The worst value that would go on from the rung if it came now; None while anything would."""
        values = self.values[rung]
        kept = max(1, int((len(values) + 1) / self.divisor))
        return values[kept - 1] if len(values) >= kept else None

    def enter(self, index: int, rung: int, value: float) -> None:
        """Remember that the trial reached the rung. Doing it twice does no harm."""
        if self.next_rung.get(index, 0) > rung:
            return
        self.values[rung].insert(bisect_left(self.values[rung], value), value)
        self.next_rung[index] = rung + 1

    def erase(self, index: int, entered: Mapping[int, float]) -> None:
        """Forget a trial whose hyperparameters were invalid."""
        for rung, value in entered.items():
            values = self.values[rung]
            i = bisect_left(values, value)
            if i < len(values) and values[i] == value:
                del values[i]
        self.next_rung.pop(index, None)


def bracket_rungs(mode: str, max_rungs: int) -> list[int]:
    """How many rungs each bracket of an adaptive search has, most first.

    The more brackets with few rungs, the more trials are trained long before anyone judges them.
    """
    if mode == "aggressive":
        return [max_rungs]
    fewest = 1 if mode == "conservative" else (max_rungs - 1) // 2 + 1
    return list(range(max_rungs, fewest - 1, -1))


def useful_rungs(max_rungs: int, divisor: float, max_length: float, max_trials: int) -> int:
    """At most ``max_rungs``; no more than the length can be divided into, nor than the trials can fill."""
    by_length = int(math.log(max(max_length, 1)) / math.log(divisor) + 1e-9) + 1
    by_trials = int(math.log(max(max_trials, 1)) / math.log(divisor) + 1e-9) + 1
    return max(1, min(max_rungs, by_length, by_trials))


def share_trials(max_trials: int, divisor: float, rungs: list[int]) -> list[int]:
    """How many trials each bracket gets, in proportion to what its halving saves; what is left over goes to the first."""
    weights = [divisor ** (r - 1) / r for r in rungs]
    total = sum(weights)
    shares = [max(1, int(weight / total * max_trials)) for weight in weights]
    shares[0] += max(0, max_trials - sum(shares))
    while sum(shares) > max_trials and len(shares) > 1:
        shares.pop()
    return shares


def share_concurrency(max_concurrent: int, trials: list[int]) -> list[int]:
    """Split evenly over the brackets, what is left over to the first ones; each at least one."""
    even, left = divmod(max(max_concurrent, len(trials)), len(trials))
    return [even + (i < left) for i in range(len(trials))]


def settings_of(settings: Mapping[str, Any]) -> tuple[float, float]:
    """``(divisor, full length)`` of a searcher section."""
    return float(settings.get("divisor") or 4), float(settings.get("max_time") or settings.get("max_length") or 1)
