"""Which brackets and rungs a halving search has, as its configuration says."""

from __future__ import annotations

import math


def bracket_rungs(mode: str, max_rungs: int) -> list[int]:
    """How many rungs each bracket of an adaptive search has, most first.

    The more brackets with few rungs, the more trials are trained long before anyone judges them.
    """
    if mode == "aggressive":
        return [max_rungs]
    fewest = 1 if mode == "conservative" else (max_rungs - 1) // 2 + 1
    return list(range(max_rungs, fewest - 1, -1))


def useful_rungs(max_rungs: int, divisor: float, max_length: int, max_trials: int) -> int:
    """At most ``max_rungs``; no more than the length can be divided into, nor than the trials can fill."""
    by_length = int(math.log(max(max_length, 1)) / math.log(divisor) + 1e-9) + 1
    by_trials = int(math.log(max(max_trials, 1)) / math.log(divisor) + 1e-9) + 1
    return max(1, min(max_rungs, by_length, by_trials))


def rungs_of(mode: str, max_rungs: int, divisor: float, max_length: int, max_trials: int) -> list[int]:
    """The brackets of ``adaptive_asha`` when it names none itself."""
    return bracket_rungs(mode, useful_rungs(max_rungs, divisor, max_length, max_trials))
