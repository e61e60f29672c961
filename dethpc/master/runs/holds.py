"""Experiments whose submissions the scheduler does not take at present.

One run of a held experiment is tried now and then, less and less frequently; the first one that is taken lets all of them go.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from dethpc.domain.facts import Run
from dethpc.engine import ClusterState
from dethpc.master.runs.live import Pace


@dataclass(slots=True, frozen=True)
class Hold:
    """``why``: the scheduler's words. ``next_try``: monotonic; ``pause``: seconds from the last try to it."""

    why: str
    next_try: float
    pause: float


class Holds:
    """For the reconciler's thread; ``of`` may be asked from any."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._held: dict[int | str, Hold] = {}

    def of(self, run: Run) -> Hold | None:
        return self._held.get(job_of(run))

    def refused(self, run: Run, why: str) -> None:
        before, longest = self._held.get(job_of(run)), self._pace.slowest_poll
        pause = self._pace.fastest_poll if before is None else min(longest, 2 * before.pause)
        self._held[job_of(run)] = Hold(why, time.monotonic() + pause, pause)

    def taken(self, run: Run) -> None:
        self._held.pop(job_of(run), None)

    def keep(self, wanted: set[int | str]) -> None:
        """Forget the holds of all jobs but these."""
        for job in self._held.keys() - wanted:
            del self._held[job]


def job_of(run: Run) -> int | str:
    """What is held together: an experiment, or a task of its own."""
    return run.task_id if run.experiment_id is None else run.experiment_id


def taken_before(run: Run, state: ClusterState) -> bool:
    """Whether the scheduler took a submission that asks for the same: what it refuses now is not what the experiment asks for."""
    for other in list(state.runs.values()):
        alike = (job_of(other), other.pool, other.slots) == (job_of(run), run.pool, run.slots)
        if alike and other.scheduler_job_id is not None:
            return True
    experiment = state.experiments.get(run.experiment_id or 0)
    return experiment is not None and any(trial.started_at is not None for trial in experiment.trials)
