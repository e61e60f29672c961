"""What is counted of one experiment while it is simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dethpc.config.sections.searcher import Method
from dethpc.simulator.result import Best


@dataclass(slots=True)
class Figures:
    """``length`` and ``period`` (between two validations) are in steps; the rest is as in ``Result``."""

    searcher: Method
    started_at: float
    length: int
    period: int
    jobs: int = 0
    attempts: int = 0
    steps: int = 0
    waited: float = 0.0
    used: int = 0
    slot_seconds: float = 0.0
    usage: list[tuple[float, int]] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)

    def hold(self, at: float, slots: int) -> None:
        """So many slots more, or fewer, from now on."""
        self.used += slots
        if self.usage and self.usage[-1][0] == at:
            self.usage.pop()
        self.usage.append((at, self.used))

    def validated(self, at: float, value: float, trial_index: int, steps: int) -> None:
        best = self.best
        if not best or (value < best[-1].value if self.searcher.smaller_is_better else value > best[-1].value):
            if not math.isnan(value):
                best.append(Best(at - self.started_at, value, trial_index, steps))
