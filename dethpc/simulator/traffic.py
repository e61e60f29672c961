"""What a simulated master asks of its scheduler, and whether slots stay idle for want of a submission."""

from __future__ import annotations

from dataclasses import dataclass, field

LOOK = 4
"""Requests of one look: one squeue and one sinfo, two each by Slurm's count."""


@dataclass(frozen=True)
class Manners:
    """How the master treats its scheduler: a look at the queue every few seconds, submissions at a rate after a burst."""

    look_every: float = 30.0
    submit_per_second: float = 1.0
    submit_burst: int = 5


@dataclass(slots=True)
class Traffic:
    """``requests``: (time, how many); ``looks``: requests of each cycle but for submissions."""

    requests: list[tuple[float, int]] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)
    idle: int = (
        0  # looks in a row, at most, between which nothing started though a slot was free and its trial not submitted
    )
    _idle_now: int = 0

    def looked(self, at: float, changed: int, idle: bool) -> None:
        self.looks.append(LOOK + changed)
        self.requests.append((at, LOOK + changed))
        self._idle_now = self._idle_now + 1 if idle else 0
        self.idle = max(self.idle, self._idle_now)

    def add_request(self, at: float) -> None:
        self.requests.append((at, 1))

    def lowest(self, bucket: float = 30, refill: float = 2) -> float:
        """The lowest level of a bucket of tokens, one for a request, refilled that many times a second; below 0: throttled."""
        level, lowest, before = bucket, bucket, 0.0
        for at, count in sorted(self.requests):
            level = min(bucket, level + (at - before) * refill) - count
            lowest, before = min(lowest, level), at
        return lowest
