"""Runs that have not ended, by pool: what the queue asks about them, kept up to date with every row."""

from __future__ import annotations

from dataclasses import dataclass, field

from dethpc.domain.facts import PoolState, Run
from dethpc.domain.states import RunState
from dethpc.engine.queueing.jobs import Job


@dataclass(slots=True)
class LiveRuns:
    """Each by pool. A job holds what its runs have or have asked for in all pools."""

    pending: dict[str, dict[str, Run]] = field(default_factory=dict)  # runs in the scheduler's own queue
    fresh: dict[str, dict[str, Run]] = field(default_factory=dict)  # runs that started since the pool was seen
    busy: dict[str, dict[str, int]] = field(default_factory=dict)  # job -> its runs
    waiting: dict[str, dict[str, int]] = field(default_factory=dict)  # job -> its runs in the scheduler's own queue
    deferred: dict[str, dict[str, int]] = field(default_factory=dict)  # job -> its runs that the scheduler refuses

    def put(self, job: Job, before: Run | None, run: Run, pool: PoolState | None) -> None:
        """``before`` is now ``run``. ``pool``: the run's, as it was last seen."""
        if before is not None:
            self._take_out(job, before)
        if run.state is RunState.ENDED:
            return
        _add(self.busy, run.pool, job.id, 1)
        job.live_slots += run.slots
        if run.state is RunState.RUNNING:
            job.running_slots += run.slots
            job.started += _start(run)
            if pool is not None and (run.started_at or 0.0) > pool.seen_at:
                self.fresh.setdefault(run.pool, {})[run.id] = run
        else:
            _add(self.waiting, run.pool, job.id, 1)
            self.pending.setdefault(run.pool, {})[run.id] = run
            if deferred(run):
                _add(self.deferred, run.pool, job.id, 1)

    def _take_out(self, job: Job, run: Run) -> None:
        _add(self.busy, run.pool, job.id, -1)
        job.live_slots -= run.slots
        if run.state is RunState.RUNNING:
            job.running_slots -= run.slots
            job.started -= _start(run)
            self.fresh.get(run.pool, {}).pop(run.id, None)
        else:
            _add(self.waiting, run.pool, job.id, -1)
            del self.pending[run.pool][run.id]
            if deferred(run):
                _add(self.deferred, run.pool, job.id, -1)

    def seen(self, pool: PoolState) -> None:
        """What started before is in what was seen of it."""
        started = self.fresh.get(pool.name, {})
        self.fresh[pool.name] = {id: run for id, run in started.items() if (run.started_at or 0.0) > pool.seen_at}


def deferred(run: Run) -> bool:
    """Whether the scheduler, when it was last asked, did not take the run. The reason is in its words then."""
    return run.state is RunState.SUBMITTING and bool(run.reason)


def _add(counts: dict[str, dict[str, int]], pool: str, job: str, number: int) -> None:
    of_pool = counts.get(pool)
    if of_pool is None:
        of_pool = counts[pool] = {}
    of_pool[job] = count = of_pool.get(job, 0) + number
    if not count:
        del of_pool[job]


def _start(run: Run) -> int:
    """What the start adds to ``Job.started``: whole milliseconds, so that sums are exact."""
    return run.slots * round((run.started_at or 0.0) * 1000)
