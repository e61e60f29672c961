"""Submissions whose answer was lost: the jobs of all such runs are looked up together, when the scheduler is asked anyway."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping

from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRecord, JobState, Scheduler
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.master.durable.lease import Lease
from dethpc.master.watching.foreign_runs import Elsewhere
from dethpc.master.watching.job_identity import Whose
from dethpc.master.watching.live_runs import Cadence, LiveRun, LiveRuns
from dethpc.master.watching.trouble import Trouble


class UnclearSubmissions:
    """A run is unclear until its claim or the scheduler shows its job, or until no job of it can appear any more."""

    def __init__(
        self,
        runs: LiveRuns,
        cadence: Cadence,
        scheduler: Scheduler,
        lease: Lease,
        whose: Whose,
        trouble: Trouble,
        elsewhere: Elsewhere,
    ) -> None:
        self._runs, self._cadence, self._scheduler = runs, cadence, scheduler
        self._lease, self._whose, self._trouble, self._elsewhere = lease, whose, trouble, elsewhere

    def look_up(self, listed: Mapping[str, JobRecord]) -> None:
        """Settle unclear submissions: by what the scheduler has just listed, and where that is not enough by one question for all.

        Raises SchedulerUnavailable, LeaseHeld.
        """
        asked_at = time.time()
        unclear = {live.run.id: live for live in self._unclear()}
        if not unclear:
            return
        settle = self._scheduler.settle
        for live in unclear.values():  # a clock that was set back must not make it wait
            live.unclear_since = min(live.unclear_since or asked_at, asked_at)
        jobs = self._by_run(listed.values(), unclear)
        names: dict[str, list[str]] = {}
        for run_id, live in unclear.items():
            if run_id not in jobs and self._elsewhere.has(live):
                continue  # it is not asked for here, where nobody knows of it
            if run_id not in jobs and live.unclear_since is not None and asked_at - live.unclear_since >= settle:
                self._trouble.contain(live, "reading its job's name", self._name, run_id, names)
        if names:
            found = self._scheduler.find(list(dict.fromkeys(name for some in names.values() for name in some)))
            for run_id, records in self._by_run(found, names).items():
                jobs.setdefault(run_id, []).extend(records)
        surplus: list[str] = []
        for run_id, records in jobs.items():
            live = unclear[run_id]
            self._trouble.contain(live, "looking its job up", self._adopt, live.run, records, surplus)
        for run_id in names:
            if run_id not in jobs:  # the first look was that of the listing
                unclear[run_id].unclear_since = None
        if surplus:
            self._lease.check()
            self._scheduler.cancel(surplus)
        self._cadence.poll_soon()

    def _by_run(self, records: Iterable[JobRecord], runs: Container[str]) -> dict[str, list[JobRecord]]:
        found: dict[str, list[JobRecord]] = {}
        for record in records:
            if (run_id := self._whose.submitted_for(record)) in runs:
                found.setdefault(run_id, []).append(record)
        return found

    def _name(self, run_id: str, names: dict[str, list[str]]) -> None:
        names[run_id] = self._whose.names(run_id)

    def _unclear(self) -> list[LiveRun]:
        return [
            live
            for live in self._runs.all()
            if live.run.state is RunState.SUBMITTING and live.unclear_since is not None
        ]

    def _adopt(self, run: Run, found: list[JobRecord], surplus: list[str]) -> None:
        """A job of this run exists although nobody wrote down its id. The claim lets one of several train; the others that wait
        are ``surplus``."""
        live = [record for record in found if record.state.live] or found[-1:]
        live.sort(key=lambda record: record.state is JobState.PENDING)  # one that runs may be about to claim it
        self._runs.do(events.Submitted(run.id, live[0].job_id, time.time(), self._elsewhere.here()))
        surplus += [record.job_id for record in live[1:] if record.state is JobState.PENDING]
