"""Short runs share a job: one that is done with its run waits a moment for the next run of its experiment.

The first to create the ``next`` file of a run decides: the master, that another run follows, or the job, that it has ended. The
run that follows has its own directory, claim, attempts and log; its Slurm job is one that exists already.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dethpc.config.site import SiteConfig
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.log_policies import Noted
from dethpc.domain.attempts.stopping import StopReason
from dethpc.domain.facts import Run
from dethpc.domain.states import Intent
from dethpc.engine.queueing.queue_index import key
from dethpc.engine.state import ClusterState
from dethpc.rundir.files import create_once
from dethpc.rundir.home import Home

PATIENCE = 3.0
"""Seconds that a job is kept for a run; a search decides what comes next as soon as a trial has ended."""


class _Free(NamedTuple):
    run: Run  # which is over
    since: float


class ReusableJobs:
    """Jobs that may take another run. ``pools``: those whose jobs do that, and until how old, in seconds. For one thread, the
    reconciler's."""

    def __init__(self, home: Home, pools: Mapping[str, float]) -> None:
        self._home, self._pools = home, pools
        self._free: list[_Free] = []
        self._spent: list[Run] = []
        self._began: dict[str, float] = {}  # jobs that took runs, and when the first one started

    def offer(self, run: Run, report: EndReport) -> None:
        """``run`` is over, as ``report`` says. Its job takes another one if it is young and the run ended well at its first start.

        A job that Slurm is about to end, or that was cancelled, takes none and is told so. One that has got old says so itself.
        """
        if run.pool not in self._pools or run.scheduler_job_id is None:
            return
        began = self._began.pop(run.scheduler_job_id, run.started_at)
        well = run.attempt == 0 and report.exit_code == 0 and run.intent is not Intent.KILL
        if not well or report.stop_reason in (StopReason.TIME_LIMIT, StopReason.PREEMPTED):
            self._spent.append(run)
            return
        if began is not None:
            if time.time() - began >= self._pools[run.pool]:
                return
            self._began[run.scheduler_job_id] = began
        self._free.append(_Free(run, time.monotonic()))

    def take(self, run: Run, state: ClusterState, script: Path) -> str | None:
        """Give ``run`` to a job that waits: its job id, or None when no job does. Raises OSError."""
        for free in list(self._free):
            if _fits(free.run, run, state):
                self._free.remove(free)
                if self._decides(free.run, str(script)):
                    return free.run.scheduler_job_id
        return None

    def release(self) -> None:
        """Let jobs end for which nothing came. Raises OSError."""
        while self._spent:
            self._decides(self._spent.pop(), None)
        now = time.monotonic()
        for free in [free for free in self._free if now - free.since > PATIENCE]:
            self._free.remove(free)
            self._began.pop(str(free.run.scheduler_job_id), None)
            self._decides(free.run, None)

    def _decides(self, done: Run, script: str | None) -> bool:
        """Whether the master is the first to say what follows in the job of this run. Raises OSError."""
        try:
            return create_once(self._home.run(done.id).next, {"script": script})
        except FileNotFoundError:  # its trial is folded: the job has ended long ago
            return False


def _fits(done: Run, run: Run, state: ClusterState) -> bool:
    """Whether ``run`` is of the same experiment and size, and takes the slots from nobody who is before it in the queue.

    Fair shares even out over time, however long a job lasts.
    """
    if (done.experiment_id, done.pool, done.slots) != (
        run.experiment_id,
        run.pool,
        run.slots,
    ) or run.experiment_id is None:
        return False
    trial = state.trial_of(run)
    if trial is not None and not set(Noted.of(trial.search).nodes).isdisjoint(done.nodes):
        return False
    kind = state.rules_of(run.pool).kind
    waiting = [state.job_of(other) for other in state.live.pending.get(run.pool, {}).values()]
    mine = key(state.job_of(run).entry, kind)
    return kind == "fair_share" or all(key(job.entry, kind) >= mine for job in waiting)


def pools_of_short_jobs(site: SiteConfig) -> dict[str, float]:
    """Pools whose jobs take several runs, and until how old, in seconds."""
    return {name: pool.min_job_seconds for name, pool in site.pools.items() if pool.min_job_seconds is not None}
