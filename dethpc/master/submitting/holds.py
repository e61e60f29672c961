"""Experiments whose submissions the scheduler does not take at present.

Those of one pool that it refuses in the same words are held together: one run of them is tried now and then, less and less
frequently, each experiment in its turn; the first one that is taken lets all of them go.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from dethpc.domain.facts import Run
from dethpc.engine import ClusterState
from dethpc.master.watching.live_runs import Pace
from dethpc.state import SqlStore, queries


@dataclass(slots=True, frozen=True)
class Hold:
    """``why``: the scheduler's words. ``next_try``: monotonic; ``pause``: seconds from the last try to it."""

    why: str
    next_try: float
    pause: float


class Holds:
    """For the reconciler's thread; ``of`` and ``why`` may be asked from any."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._held: dict[int | str, tuple[str, str]] = {}  # job -> pool and words
        self._holds: dict[tuple[str, str], Hold] = {}
        self._tried: dict[int | str, float] = {}  # job -> when it was last tried, monotonic

    def of(self, run: Run) -> Hold | None:
        held = self._held.get(job_of(run))
        return None if held is None else self._holds.get(held)

    def why(self, run: Run) -> str:
        """In the scheduler's words, why it does not take the run, which a master before this one may have heard; or nothing."""
        hold = self.of(run)
        return run.reason if hold is None else hold.why

    def last_try(self, run: Run) -> float:
        """When the job of a held run was last tried: the one for which that is longest ago comes next."""
        return self._tried.get(job_of(run), 0.0)

    def refused(self, run: Run, why: str) -> None:
        held = self._held[job_of(run)] = run.pool, why
        before, now, longest = self._holds.get(held), time.monotonic(), self._pace.slowest_poll
        self._tried[job_of(run)] = now
        if before is not None and now < before.next_try:
            return  # another job has just met the same
        pause = self._pace.fastest_poll if before is None else min(longest, 2 * before.pause)
        self._holds[held] = Hold(why, now + pause, pause)

    def release(self, run: Run) -> None:
        """What is held together goes on together."""
        held = self._held.get(job_of(run))
        self._forget({job for job, other in self._held.items() if other == held})

    def keep(self, jobs: set[int | str]) -> None:
        """Forget the holds of all jobs but these."""
        self._forget(self._held.keys() - jobs)

    def _forget(self, jobs: set[int | str]) -> None:
        if jobs:
            self._held = {job: held for job, held in self._held.items() if job not in jobs}
            self._tried = {job: at for job, at in self._tried.items() if job in self._held}
            remaining = set(self._held.values())
            self._holds = {held: hold for held, hold in self._holds.items() if held in remaining}


def job_of(run: Run) -> int | str:
    """What is held together: an experiment, or a task of its own."""
    return run.task_id if run.experiment_id is None else run.experiment_id


def taken_before(run: Run, state: ClusterState, store: SqlStore) -> bool:
    """Whether the scheduler took a submission that asks for the same: what it refuses now is not what the experiment asks for.
    Its job may be over, and may never have begun. Raises StoreError."""
    experiment = state.experiments.get(run.experiment_id or 0)
    if experiment is not None and any(trial.started_at is not None for trial in experiment.trials):
        return True
    with store.read() as connection:
        return queries.was_taken(connection, run)
