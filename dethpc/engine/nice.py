"""Order among our own jobs in the scheduler's queue, by what a plain user may do: step back, and take that back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LARGEST = 10_000
"""No job is moved back further, or it would lose its place among other users' jobs."""


class PendingJob(NamedTuple):
    """A pending job as the scheduler shows it: the greatest ``priority`` starts first; ``nice`` is taken off already."""

    priority: int
    nice: int

    @property
    def base(self) -> int:
        return self.priority + self.nice


def assign(jobs: Sequence[PendingJob], at_most: int) -> list[int]:
    """The nice values that bring ``jobs`` into the order in which they are given; no more than ``at_most`` of them change.

    A job that is in its place is left alone. One that should come sooner takes back what it stepped back; where that is not
    enough, those before it step back. When not all can change, those go first that stand in the way of most.
    """
    wanted = [job.nice for job in jobs]
    floor = 0
    for n in range(len(jobs) - 1, -1, -1):
        job = jobs[n]
        if job.base - wanted[n] <= floor:
            wanted[n] = max(0, min(job.nice, job.base - floor - 1))
        floor = max(floor, job.base - wanted[n])
    ceiling = None
    for n, job in enumerate(jobs):
        if ceiling is not None and job.base - wanted[n] >= ceiling:
            wanted[n] = min(LARGEST, job.base - ceiling + 1)
        ceiling = job.base - wanted[n]
    changed = [n for n, job in enumerate(jobs) if wanted[n] != job.nice]
    for n in sorted(changed, key=lambda n: (wanted[n] > jobs[n].nice, -jobs[n].priority))[max(0, at_most) :]:
        wanted[n] = jobs[n].nice
    return wanted
