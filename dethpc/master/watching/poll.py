"""Asking the scheduler: all jobs in one go, compared with what is known; then the order of those that wait in its queue.

A poll costs the same few requests whatever the number of runs.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from dethpc.domain.facts import Experiment, Row, Run
from dethpc.domain.ids import job_number
from dethpc.domain.ports import LEFT_ITS_ARRAY, JobRecord, JobState, NodeInfo
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.engine.queueing.nice import PendingJob
from dethpc.errors import SchedulerUnavailable
from dethpc.master.parts import Parts
from dethpc.master.watching.job_identity import JobIdentity
from dethpc.master.watching.journals import Journals
from dethpc.master.watching.live_runs import Leftover, LiveRun
from dethpc.master.watching.read import Reader
from dethpc.master.watching.trouble import Trouble
from dethpc.master.watching.watch import Watch

CLOCKS = 2.0
"""Seconds by which the clocks of a node and of the scheduler may differ, and no time of day is earlier than another."""

LATE_FILES = 5.0
"""Seconds by which files of a compute node may arrive after the scheduler's word that its job has ended."""

AFTER_REQUEUE = 1.0 + CLOCKS
"""Seconds after a requeue before the job may start again. Nodes tell its new credential from the revoked one by whole seconds, and
Slurm ends a job whose credential they refuse."""

CLEAR_AT_ONCE = 25
"""How many jobs to release at once; the others follow at the next poll."""

END_BY_ITSELF = 30.0
"""Seconds that the job of a run that has ended may go on."""

WATCH_LOST = 900.0
"""Seconds in which the job of a run that was given up may be listed again, and is cancelled then."""


class UnclearSubmissions:
    """Submissions whose answer was lost: the jobs of all such runs are looked up together, at a poll.

    A run is unclear until its claim or the scheduler shows its job, or until no job of it can appear any more.
    """

    def __init__(self, parts: Parts, watch: Watch, identity: JobIdentity, trouble: Trouble) -> None:
        self._scheduler = parts.scheduler
        self._lease = parts.lease
        self._runs = watch.runs
        self._cadence = watch.cadence
        self._foreign = watch.foreign
        self._identity = identity
        self._trouble = trouble

    def look_up(self, listed: Mapping[str, JobRecord]) -> None:
        """Settle unclear submissions: by what the scheduler has just listed, and where that is not enough by one question for all.

        Raises SchedulerUnavailable, LeaseHeld.
        """
        asked_at = time.time()
        submitting = [live for live in self._runs.all() if live.run.state is RunState.SUBMITTING]
        unclear = {live.run.id: live for live in submitting if live.unclear_since is not None}
        if not unclear:
            return
        settle = self._scheduler.settle
        for live in unclear.values():  # a clock that was set back must not make it wait
            live.unclear_since = min(live.unclear_since or asked_at, asked_at)
        jobs = self._by_run(listed.values(), unclear)
        names: dict[str, list[str]] = {}
        for run_id, live in unclear.items():
            if run_id not in jobs and self._foreign.has(live):
                continue  # it is not asked for here, where nobody knows of it
            if run_id not in jobs and live.unclear_since is not None and asked_at - live.unclear_since >= settle:
                self._trouble.contain(live, "reading its job's name", self._name, run_id, names)
        if names:
            candidates = self._scheduler.find(list(dict.fromkeys(name for some in names.values() for name in some)))
            for run_id, records in self._by_run(candidates, names).items():
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
        by_run: dict[str, list[JobRecord]] = {}
        for record in records:
            if (run_id := self._identity.submitted_for(record)) in runs:
                by_run.setdefault(run_id, []).append(record)
        return by_run

    def _name(self, run_id: str, names: dict[str, list[str]]) -> None:
        names[run_id] = self._identity.names(run_id)

    def _adopt(self, run: Run, candidates: list[JobRecord], surplus: list[str]) -> None:
        """A job of this run exists although nobody wrote down its id. The claim lets one of several train; the others that wait
        are ``surplus``."""
        live = [record for record in candidates if record.state.live] or candidates[-1:]
        live.sort(key=lambda record: record.state is JobState.PENDING)  # one that runs may be about to claim it
        self._runs.do(events.Submitted(run.id, live[0].job_id, time.time(), self._foreign.here()))
        surplus += [record.job_id for record in live[1:] if record.state is JobState.PENDING]


class Poller:
    def __init__(
        self, parts: Parts, watch: Watch, reader: Reader, journals: Journals, identity: JobIdentity, trouble: Trouble
    ) -> None:
        self._ledger = parts.ledger
        self._scheduler = parts.scheduler
        self._lease = parts.lease
        self._view = parts.cluster
        self._runs = watch.runs
        self._cadence = watch.cadence
        self._foreign = watch.foreign
        self._arrays = watch.arrays
        self._reader = reader
        self._journals = journals
        self._identity = identity
        self._trouble = trouble
        self._unclear = UnclearSubmissions(parts, watch, identity, trouble)
        self._order = {id: _place(experiment.row) for id, experiment in parts.ledger.state.experiments.items()}
        self._reordered = False  # somebody has changed the order of the queue
        self._polled = False  # jobs may be left that only the scheduler knows of
        parts.ledger.listen(self._committed)

    def _committed(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if isinstance(row, Experiment) and row.state.terminal:
                self._order.pop(row.id, None)
            elif isinstance(row, Experiment) and self._order.get(row.id) != (place := _place(row)):
                self._reordered = row.id in self._order or self._reordered
                self._order[row.id] = place

    def poll_if_due(self) -> None:
        """Raises LeaseHeld."""
        if self._reordered:
            self._reordered = False
            self._cadence.poll_soon()
        something = len(self._runs) or self._runs.leftover_jobs or self._arrays.any_left
        if (something or not self._polled) and self._cadence.poll_is_due():
            for live in self._runs.all():
                if scheduler := self._foreign.unsaid(live):
                    self._runs.do(events.SchedulerKnown(live.run.id, scheduler, time.time()))
            try:
                self.poll()
            except SchedulerUnavailable as error:
                self._cadence.unanswered(error)
            self._foreign.look(self._runs.all(), self._cadence.unavailable_because)

    def poll(self) -> None:
        """Raises SchedulerUnavailable, LeaseHeld."""
        try:
            listed = self._scheduler.jobs()
            self._unclear.look_up(listed)
            handed_over = [live for live in self._runs.all() if live.run.scheduler_job_id is not None]
            missing = [
                live.run.scheduler_job_id
                for live in handed_over
                if live.run.scheduler_job_id
                and self._identity.record(live, listed) is None
                and not (self._polled and self._foreign.has(live))  # once: its controller may have moved
            ]
            # A listing that lacks a job proves nothing: it is asked for a second way.
            records = {**listed, **(self._scheduler.records(missing) if missing else {})}
            self._cadence.listed_at = time.monotonic()
            nodes = self._view.current_nodes(self._cadence.listed_at) if self._something_waits() else []
        finally:
            self._cadence.polled()
        self._cadence.answered()
        self._polled = True
        learned: list[tuple[LiveRun, Future[list[Row]]]] = []  # committed together, not one by one
        for live in handed_over:
            if not _as_known(live.run, self._identity.record(live, records)):
                live.poll_interval.now(every_attempt=True)
                self._trouble.contain(live, "reading its directory", self._reader.read_run_dir, live)
            if self._runs.get(live.run.id) is None or live.run.scheduler_job_id is None:
                continue
            record = self._identity.record(live, records)
            if record is None and self._foreign.has(live):
                continue  # that nobody here knows of its job says nothing
            if live.run.scheduler != self._foreign.here():
                self._runs.do(events.SchedulerKnown(live.run.id, self._foreign.here(), time.time()))
            self._trouble.contain(live, "comparing it with the scheduler's word", self._compare, live, record, learned)
        for live, committed in learned:
            self._trouble.contain(live, "taking in the scheduler's word", committed.result)
        self._runs.take_in()
        self._tend_queue(listed, nodes)
        self._clear_begin_times(listed)
        self._cancel_leftovers(listed)
        self._arrays.clean_up(self._runs, listed.values())

    def take_over(self) -> None:
        """Conclude the runs that no scheduler can be asked about, where their owner has said that they are over."""
        if not self._foreign.taken_over():
            return
        for live in self._runs.all():
            if not self._cadence.unavailable_because and not self._foreign.has(live):
                continue
            if live.run.scheduler_job_id is not None:
                self._trouble.contain(live, "giving it up", self._reader.conclude, live, None)
            live.unclear_since = None  # its claim lets one job of it train
        self._foreign.look(self._runs.all(), self._cadence.unavailable_because)

    def _something_waits(self) -> bool:
        return self._ledger.state.places.count > 0 or any(
            live.run.state is not RunState.RUNNING for live in self._runs.all()
        )

    # --- one run against its record

    def _compare(
        self, live: LiveRun, record: JobRecord | None, learned: list[tuple[LiveRun, Future[list[Row]]]]
    ) -> None:
        def commit(event: events.Event) -> None:
            learned.append((live, self._ledger.post(event)))

        if record is not None and record.reason == LEFT_ITS_ARRAY and self._reader.has_begun(live.run):
            record = None  # it has ended, and Slurm has forgotten it before the others of its array
        if record is None:
            if self._reader.grows(live) and live.run.intent is not Intent.KILL:
                live.unconfirmed_since = None
                self._cadence.poll_soon()
            elif self._waited(live, self._scheduler.settle):
                self._reader.conclude(live, None, commit)
        elif record.state is JobState.COMPLETING:
            self._cadence.poll_soon()
        elif not record.state.live:
            expected = record.state is not JobState.COMPLETED or self._reader.report_is_there(live.run)
            if expected or self._waited(live, min(LATE_FILES, self._scheduler.settle)):
                self._reader.conclude(live, record, commit)
        else:
            live.restarts = record.restarts
            if live.run.state is RunState.RUNNING and 0 <= live.run.attempt < record.restarts:
                self._requeued(live, record)
            else:
                live.unconfirmed_since = None
                commit(events.JobSeen(live.run.id, record, time.time()))

    def _waited(self, live: LiveRun, seconds: float) -> bool:
        if live.unconfirmed_since is None:
            live.unconfirmed_since = time.monotonic()
        self._cadence.poll_soon()
        return time.monotonic() - live.unconfirmed_since >= seconds

    def _requeued(self, live: LiveRun, record: JobRecord) -> None:
        """The scheduler has put the job back into its queue, and the next attempt has not started yet."""
        if self._reader.next_attempt(live) is not None:
            return
        run = live.run
        if not self._journals.read_remains(live):
            return  # the next poll comes here again
        if run.intent is not Intent.GO:
            self._lease.check()
            self._scheduler.cancel([record.job_id])  # nobody wants its next start
        attempt = self._ledger.state.attempt(run.id, run.attempt)
        since = attempt.started_at if attempt is not None else 0.0
        preempted = record.preempted_at is not None and record.preempted_at >= since - CLOCKS
        requeued = replace(record, preempted=preempted)
        self._runs.do(self._reader.ended(live, requeued, requeued=True, by=record.started_at))

    # --- the queue

    def _tend_queue(self, listed: Mapping[str, JobRecord], nodes: Sequence[NodeInfo]) -> None:
        """Let the engine see what waits and what is free, and bring our jobs in the scheduler's queue into its order."""
        waiting: dict[str, PendingJob] = {}
        for live in self._runs.all():
            record = self._identity.record(live, listed)
            if record is not None and record.state is JobState.PENDING and record.priority and record.nice is not None:
                waiting[live.run.id] = PendingJob(record.priority, record.nice, job_number(record.job_id))
        if not waiting and not nodes:
            return
        by_pool: dict[str, list[tuple[int, int]]] = {}
        for node in nodes:
            for pool in node.pools:
                by_pool.setdefault(pool, []).append(
                    (node.slots - node.slots_used if node.state.usable else 0, node.slots)
                )
        started = dict(self._runs.started)
        self._runs.started.clear()
        self._runs.do(events.QueueSeen(by_pool, started, waiting, time.time()))
        queued = {live.run.id: live.run for live in self._runs.all() if live.run.id in waiting}
        changed = {str(run.scheduler_job_id): run.nice for id, run in queued.items() if run.nice != waiting[id].nice}
        if changed:
            self._lease.check()
            self._scheduler.nice(changed)
            self._cadence.poll_soon()

    def _clear_begin_times(self, listed: Mapping[str, JobRecord]) -> None:
        """Slurm holds a requeued job back for two minutes. Once for each requeue: who sets another time by hand is obeyed."""
        held: list[tuple[LiveRun, JobRecord]] = []
        now = time.time()
        for live in self._runs.all():
            record = self._identity.record(live, listed)
            if record is None or live.run.intent is not Intent.GO or record.restarts <= live.begin_time_cleared:
                continue
            if record.state is not JobState.PENDING or record.reason != "BeginTime":
                continue
            if now - (record.submitted_at or 0.0) >= AFTER_REQUEUE:  # a requeue is a submission to Slurm
                held.append((live, record))
            else:
                self._cadence.poll_soon()
        due = held[:CLEAR_AT_ONCE]
        if due:
            self._lease.check()
            self._scheduler.start_now([record.job_id for _, record in due])
            for live, record in due:
                live.begin_time_cleared = record.restarts
            self._cadence.poll_soon()

    def _cancel_leftovers(self, listed: Mapping[str, JobRecord]) -> None:
        """Jobs of runs that have ended: the scheduler may have queued one again at the very moment, and one that was given up
        may be there again. A job that runs has a while to end by itself."""
        self._find_leftovers(listed)
        in_use = {live.run.scheduler_job_id for live in self._runs.all()}  # of short runs several have one job
        now, due = time.monotonic(), []
        for job_id, leftover in list(self._runs.leftover_jobs.items()):
            record = listed.get(job_id)
            if record is None:
                if now - leftover.since >= (WATCH_LOST if leftover.lost else self._scheduler.settle):
                    del self._runs.leftover_jobs[job_id]
            elif not record.state.live or not self._identity.carries(record, leftover.run_id):
                del self._runs.leftover_jobs[job_id]
            elif job_id not in in_use and (
                record.state is JobState.PENDING or leftover.lost or now - leftover.since >= END_BY_ITSELF
            ):
                due.append(job_id)
        if due:
            self._lease.check()
            self._scheduler.cancel(due)

    def _find_leftovers(self, listed: Mapping[str, JobRecord]) -> None:
        """By what is listed: a master before this one may have concluded their runs, or this one long ago."""
        for job_id, record in listed.items():
            if record.state.live and job_id not in self._runs.leftover_jobs:
                run_id = self._identity.submitted_for(record)
                if run_id and self._runs.get(run_id) is None and self._reader.is_closed(run_id):
                    self._runs.leftover_jobs[job_id] = Leftover(run_id, lost=False)


def _as_known(run: Run, record: JobRecord | None) -> bool:
    """Whether what the scheduler says of the run's job is what its directory has said so far."""
    if record is None or record.restarts > max(0, run.attempt):
        return False
    return record.state is (JobState.RUNNING if run.state is RunState.RUNNING else JobState.PENDING)


def _place(row: Experiment) -> tuple[object, ...]:
    """What its runs' order in the scheduler's queue follows from."""
    return row.pool, row.priority, row.queue_position, row.weight
