"""Decides when something is due between batches, and when the workers stop."""

from __future__ import annotations

import sys
import time
from typing import Optional

from dethpc import core
from dethpc.pytorch._training.units import Batch, TrainUnit
from dethpc.pytorch._trial_context import _TrialContext

LOOK_EVERY = 0.25  # seconds between two looks, by several workers, whether they should stop


class Due:
    """Whether a period or schedule has been reached."""

    def __init__(self, unit: TrainUnit) -> None:
        self._unit = unit
        self._batches = isinstance(unit, Batch)
        self.reached = False

    def soonest(self, batches: int) -> int:
        """After ``batches``, it is not reached before this many, but at the end of an epoch."""
        value = self._unit.value
        if not self._batches:
            return sys.maxsize
        if not isinstance(value, int) or value < 1:
            return batches + 1
        return (batches // value + 1) * value

    def after(self, batches: int, epochs: Optional[int]) -> bool:
        """``epochs`` is None within an epoch."""
        count = batches if self._batches else epochs
        self.reached = count is not None and self._unit.should_stop(count)
        return self.reached


class Stop:
    """Whether the workers should stop, asked after each batch.

    A worker alone just looks. Several must agree on the batch, which takes messages: they look about every LOOK_EVERY seconds,
    after as many batches as the chief reckons.
    """

    def __init__(self, core_context: core.Context, context: _TrialContext) -> None:
        self._preempt = core_context.preempt
        self._context = context
        self._distributed = core_context.distributed
        self._left = 1
        self._batches = 0
        self._since = time.monotonic()

    def should_stop(self, now: bool = False) -> bool:
        """``now``: look, however short ago the last look was; all workers say the same."""
        if self._distributed.size == 1:
            return self._preempt.should_preempt() or self._context.get_stop_requested()
        if not now:
            self._left -= 1
            self._batches += 1
            if self._left > 0:
                return False
        elapsed = max(time.monotonic() - self._since, 1e-6)
        answers = self._distributed.allgather((self._context.get_stop_requested(), self._wait(elapsed)))
        self._left = answers[0][1]
        self._batches, self._since = 0, time.monotonic()
        return bool(self._preempt.should_preempt()) or any(stop for stop, _ in answers)

    def _wait(self, elapsed: float) -> int:
        if not self._batches:
            return 1
        return max(1, min(1000, int(LOOK_EVERY * self._batches / elapsed)))


def endless(period: Optional[TrainUnit]) -> TrainUnit:
    """``period``, or never."""
    return Batch(sys.maxsize) if period is None else period
