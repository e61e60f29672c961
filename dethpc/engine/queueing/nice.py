"""Order among our own jobs in the scheduler's queue, by what a plain user may do: step back, and take that back.

Nobody can step back behind the least priority. Where a site's weights are small, all jobs stand there, and the scheduler starts
them in the order in which they came: then those that stand in the way are taken back, and come again behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LARGEST = 10_000
"""No job is moved back further, or it would lose its place among other users' jobs."""

LEAST = 1
"""No job that may start has a lower priority, whatever its nice."""


class PendingJob(NamedTuple):
    """A pending job as the scheduler shows it: the greatest ``priority`` starts first, and of equals the least ``number``.

    ``nice`` is taken off the priority already.
    """

    priority: int
    nice: int
    number: int = 0

    @property
    def base(self) -> int:
        """Its priority before it stepped back. Of one that stands at the least nobody knows; it counts as having none to give."""
        return self.priority + self.nice if self.priority > LEAST else LEAST

    @property
    def place(self) -> tuple[int, int]:
        """In the scheduler's queue: the greatest is the first to start."""
        return self.priority, -self.number

    def stepping_back(self, nice: int) -> PendingJob:
        """The job once it steps back so far."""
        return self if nice == self.nice else PendingJob(max(LEAST, self.base - nice), nice, self.number)


def assign(jobs: Sequence[PendingJob], at_most: int) -> list[int]:
    """The nice values that bring ``jobs`` into the order in which they are given; no more than ``at_most`` of them change.

    A job that is in its place is left alone. One that should come sooner takes back what it stepped back; where that is not
    enough, those before it step back. When not all can change, those go first that stand in the way of most.
    """
    targets = [job.nice for job in _arranged(jobs)]
    changed = [n for n, job in enumerate(jobs) if targets[n] != job.nice]
    for n in sorted(changed, key=lambda n: (targets[n] > jobs[n].nice, -jobs[n].priority))[max(0, at_most) :]:
        targets[n] = jobs[n].nice
    return targets


def in_the_way(jobs: Sequence[PendingJob]) -> list[int]:
    """Which of ``jobs`` start before one that is given before them, whatever their nice, and would not if they came anew."""
    if all(job.base > len(jobs) for job in jobs):
        return []  # each can step back behind all others
    positions, last = [], None
    for n, job in enumerate(_arranged(jobs)):
        if last is None or job.place < last:
            last = job.place
        elif job.priority == last[0]:
            positions.append(n)
    return positions


def _arranged(jobs: Sequence[PendingJob]) -> list[PendingJob]:
    """The jobs in the order in which they are given, as far as nice can bring them there."""
    arranged = list(jobs)
    first = (0, 0)  # of those behind
    for n in range(len(jobs) - 1, -1, -1):
        job = arranged[n]
        if job.place <= first:
            job = arranged[n] = job.stepping_back(max(0, min(job.nice, job.base - _priority_at(job, first, 1))))
        first = max(first, job.place)
    last = None  # of those before
    for n, job in enumerate(arranged):
        if last is not None and job.place >= last:
            behind = max(LEAST, _priority_at(job, last, -1))
            if job.priority > behind:
                job = arranged[n] = job.stepping_back(max(job.nice, min(LARGEST, job.base - behind)))
        last = job.place if last is None else min(last, job.place)
    return arranged


def _priority_at(job: PendingJob, place: tuple[int, int], side: int) -> int:
    """The priority at which the job stands just before (1) or behind (-1) the place."""
    tie = (-job.number - place[1]) * side > 0
    return place[0] if tie else place[0] + side
