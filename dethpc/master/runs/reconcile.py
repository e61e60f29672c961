"""Brings the world to what the rows want, and tells the engine what the world did.

One thread goes round: submit wanted runs, pass on stops and kills, read journals, and now and then ask the scheduler for all
jobs at once. Everything it does may be done twice: a master that was killed at any point does the same again from its rows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dethpc.domain.facts import Experiment, Row, Run
from dethpc.domain.ids import job_name
from dethpc.domain.ports import JobRecord, JobRequest, JobState, NodeInfo, Scheduler
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.engine.attempts import next_deadline
from dethpc.engine.ends import conclusive
from dethpc.engine.nice import PendingJob
from dethpc.engine.unmanaged import is_unmanaged
from dethpc.engine.waiting import usable
from dethpc.errors import LeaseHeld, RunDirError, SchedulerUnavailable, SubmitRejected, SubmitUncertain
from dethpc.master.durable.lease import RENEW, Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.runs.reuse import ReusableJobs
from dethpc.rundir.claim import claimed_by
from dethpc.rundir.files import create_once, read_json, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.journal import read as read_journal
from dethpc.rundir.layout import RunDir

log = logging.getLogger(__name__)

SUBMIT_AT_ONCE = 25
"""Submissions in a row, before anything else is looked at."""

PREPARE_AT_ONCE = 5
"""Run directories that are written at once; the next ones while these are submitted."""

SUBMITTING = "submitting"
"""File in the run directory: its job was, or was about to be, handed to the scheduler at this time."""

TRIES_TO_WRITE = 5
"""How often a run directory is tried to be written until the trial is given up."""

CLOCKS = 2.0
"""Seconds by which the clocks of a node and of the scheduler may differ, and no time of day is earlier than another."""

KILL_AGAIN = 10.0
"""Seconds after which a job that is still there is cancelled once more."""

_Answer = events.Submitted | events.SubmitFailed


@dataclass(slots=True, frozen=True)
class Pace:
    """How often to look, in seconds."""

    files: float = 0.5  # at the run directories of live runs
    fastest_poll: float = 10.0  # between two questions to the scheduler, when much happens
    slowest_poll: float = 60.0  # when nothing does
    rest: float = 5.0  # a trial's after its first failure; after each further one twice as long
    submit_at_once: int = 1  # submissions under way at the same time


class Reconciler:
    """``prepare`` makes run directories and returns the jobs to submit. ``lost`` is called when the lease is gone,
    ``tell`` with each new value of a run and the one before."""

    def __init__(
        self,
        ledger: Ledger,
        scheduler: Scheduler,
        home: Home,
        lease: Lease,
        prepare: Callable[[Sequence[Run]], Mapping[str, JobRequest | SubmitRejected]],
        pace: Pace,
        lost: Callable[[], None],
        reusable: ReusableJobs,
        tell: Callable[[Run, Run | None], None] = lambda run, before: None,
    ) -> None:
        self._ledger, self._scheduler, self._home, self._lease = ledger, scheduler, home, lease
        self._prepare, self._pace, self._lost, self._reusable = prepare, pace, lost, reusable
        self._tell = tell
        # Unmanaged runs have no job: nothing here concerns them.
        self._live: dict[str, Run] = {id: run for id, run in ledger.state.runs.items() if not is_unmanaged(id)}
        self._changed: queue.SimpleQueue[Run] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = False
        self._next_poll, self._poll_interval = 0.0, pace.fastest_poll
        self._not_before = 0.0  # the scheduler did not answer: leave it alone until then
        self._nodes_down: tuple[float, frozenset[str]] = (-1e9, frozenset())  # when it was asked, and what it said
        self.silence = ""  # why it did not answer last; empty while it does
        self._unsure: dict[
            str, float
        ] = {}  # run id -> when its job was first found ended or gone without an end report
        self._killed: dict[str, float] = {}  # run id -> when it was last cancelled
        self._unwritable: dict[str, int] = {}  # run id -> how often its directory could not be written
        self._trouble: dict[str, str] = {}  # run id -> what was last wrong with its directory
        self._told: set[tuple[str, int, Intent]] = set()
        self._started: dict[str, int] = {}  # pool -> runs that started since the last look at the queue
        self._moved = False  # somebody has changed the order of the queue
        self._restarts: dict[str, int] = {}  # run id -> how often the scheduler has started its job again
        self._hastened: set[tuple[str, int]] = set()
        self._left: set[str] = set()  # jobs of runs that ended before the scheduler said so
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._places = {id: _place(experiment.row) for id, experiment in ledger.state.experiments.items()}
        ledger.listen(self._committed)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def wake(self) -> None:
        """Something was written to a run directory: look now."""
        self._wake.set()

    def _committed(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if isinstance(row, Run) and not is_unmanaged(row.id):
                self._changed.put(row)
                self._wake.set()
            elif isinstance(row, Experiment) and self._places.get(row.id) != (place := _place(row)):
                self._moved = row.id in self._places or self._moved
                self._places[row.id] = place

    def _run(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                self.cycle()
                failures = 0
            except LeaseHeld as error:
                log.error("%s; this master ends", error)
                self._lost()
                return
            except Exception:
                failures += 1
                log.exception("a cycle failed; the next one tries again")
            pause = RENEW if not self._live else self._pace.files
            deadline = next_deadline(self._ledger.state)
            if deadline is not None:
                pause = min(pause, max(0.05, deadline - time.time()))
            self._wake.wait(max(pause, min(30.0, failures * 2.0)))
            self._wake.clear()

    def cycle(self) -> None:
        """One round. Raises LeaseHeld when another master has taken over."""
        self._lease.renew()
        self._take_in()
        self._submit([run for run in self._live.values() if run.state is RunState.SUBMITTING])
        for run in list(self._live.values()):
            if run.state is not RunState.SUBMITTING:
                self._pass_on_intent(run)
                self._look(run)
        self._take_in()
        self._cancel([run for run in self._live.values() if run.intent is Intent.KILL])
        self._reusable.release()
        if self._moved:
            self._moved = False
            self._hurry()
        if (self._live or self._left) and time.monotonic() >= max(self._next_poll, self._not_before):
            self._poll()
        deadline = next_deadline(self._ledger.state)
        if deadline is not None and time.time() >= deadline:
            self._ledger.do(events.Tick(time.time()))

    def _take_in(self) -> None:
        while not self._changed.empty():
            run = self._changed.get()
            if run.state is RunState.ENDED:
                self._live.pop(run.id, None)
                self._unsure.pop(run.id, None)
                self._killed.pop(run.id, None)
                self._unwritable.pop(run.id, None)
                self._trouble.pop(run.id, None)
                self._restarts.pop(run.id, None)
            else:
                self._tell(run, self._live.get(run.id))
                self._live[run.id] = run

    def _do(self, event: events.Event) -> None:
        self._ledger.do(event)
        self._take_in()

    # --- submitting

    def _submit(self, runs: list[Run]) -> None:
        if not runs or time.monotonic() < self._not_before:
            return
        fresh: list[Run] = []
        answers: list[_Answer] = []
        try:
            for run in runs:
                try:
                    if not self._submitted_before(run):
                        fresh.append(run)
                except (OSError, RunDirError) as error:
                    answers += self._cannot_write([run], error)
                if len(fresh) == SUBMIT_AT_ONCE:
                    break
        except SchedulerUnavailable as error:
            return self._back_off(error)
        handed_over, silence = self._hand_over(fresh)
        for committed in [self._ledger.post(answer) for answer in [*answers, *handed_over]]:
            committed.result()
        self._take_in()
        if silence is not None:
            self._back_off(silence)
        elif fresh:
            self.silence = ""
            self._hurry()

    def _hand_over(self, runs: Sequence[Run]) -> tuple[list[_Answer], SchedulerUnavailable | None]:
        """Submit in order, a few at the same time, and write run directories meanwhile. Raises LeaseHeld.

        Stops where the scheduler does not answer, or a directory cannot be written.
        """
        answers: list[_Answer] = []
        silence: list[SchedulerUnavailable] = []

        def submit(run: Run, job: JobRequest) -> _Answer | None:
            if silence:
                return None
            try:
                return self._submit_one(run, job)
            except SchedulerUnavailable as error:
                silence.append(error)
                return None

        under_way: list[tuple[Run, Future[_Answer | None]]] = []
        with ThreadPoolExecutor(self._pace.submit_at_once, "submit") as threads:
            for start in range(0, len(runs), PREPARE_AT_ONCE):
                some = runs[start : start + PREPARE_AT_ONCE]
                try:
                    for run, job in self._prepared(some, answers):
                        under_way.append((run, threads.submit(submit, run, job)))
                except SchedulerUnavailable as error:
                    silence.append(error)
                except OSError as error:
                    settled = {run.id for run, _ in under_way} | {answer.run_id for answer in answers}
                    answers += self._cannot_write([run for run in some if run.id not in settled], error)
                    break
                if silence:
                    break
        for run, future in under_way:
            try:
                answer = future.result()
            except OSError as error:
                answers += self._cannot_write([run], error)
            else:
                answers += [] if answer is None else [answer]
        return answers, silence[0] if silence else None

    def _prepared(self, runs: Sequence[Run], answers: list[_Answer]) -> Iterator[tuple[Run, JobRequest]]:
        """Runs with their jobs; of those that need no submission, the answer. Raises OSError, SchedulerUnavailable."""
        jobs = self._prepare(runs)
        for run in runs:
            job = jobs[run.id]
            if isinstance(job, SubmitRejected):
                answers.append(events.SubmitFailed(run.id, str(job), time.time()))
            elif (carrier := self._reusable.take(run, self._ledger.state, job.script)) is not None:
                answers.append(events.Submitted(run.id, carrier, time.time()))
            else:
                yield run, job

    def _submit_one(self, run: Run, job: JobRequest) -> _Answer | None:
        self._lease.check()
        # Not on disk yet: should the machine stop now, the claim still lets only one job of the run train.
        write_json(job.run_dir / SUBMITTING, {"at": time.time()}, durable=False)
        try:
            return events.Submitted(run.id, self._scheduler.submit(job), time.time())
        except SubmitRejected as error:
            return events.SubmitFailed(run.id, str(error), time.time())
        except SubmitUncertain as error:
            log.warning("run %s: %s; its job will be looked up", run.id, error)
            return None

    def _cannot_write(self, runs: Sequence[Run], error: OSError | RunDirError) -> list[_Answer]:
        """A full or failing file system may recover, but a run that waits for it for ever helps nobody."""
        log.warning("run directories cannot be written: %s", error)
        self._not_before = time.monotonic() + self._pace.fastest_poll
        for run in runs:
            self._unwritable[run.id] = self._unwritable.get(run.id, 0) + 1
        message = f"the run directory cannot be written: {error}"
        given_up = [run.id for run in runs if self._unwritable[run.id] >= TRIES_TO_WRITE]
        return [events.SubmitFailed(run_id, message, time.time()) for run_id in given_up]

    def _submitted_before(self, run: Run) -> bool:
        """Whether the run needs no submission now: it has a job, or may have one, or nobody wants it any more."""
        run_dir = self._home.run(run.id)
        held_by = claimed_by(run_dir)
        if held_by is not None:
            self._do(events.Submitted(run.id, held_by, time.time()))
            return True
        earlier = read_json(run_dir.path / SUBMITTING)
        if earlier is not None:
            found = self._scheduler.find(self._name(run))
            if found:
                self._adopt(run, found)
                return True
            if time.time() - float(earlier["at"]) < self._scheduler.settle:
                return True
        if run.intent is not Intent.GO:
            self._do(events.AttemptEnded(run.id, -1, None, None, time.time()))
            return True
        return False

    def _adopt(self, run: Run, found: list[JobRecord]) -> None:
        """A job of this run exists although nobody wrote down its id. The claim lets one of several train; the rest go."""
        live = [record for record in found if record.state.live] or found[-1:]
        live.sort(key=lambda record: record.state is JobState.PENDING)  # one that runs may be about to claim it
        surplus = [record.job_id for record in live[1:] if record.state is JobState.PENDING]
        if surplus:
            self._lease.check()
            self._scheduler.cancel(surplus)
        self._do(events.Submitted(run.id, live[0].job_id, time.time()))

    def _name(self, run: Run) -> str:
        return job_name(self._lease.cluster_id, run.id)

    # --- stopping

    def _pass_on_intent(self, run: Run) -> None:
        told = (run.id, run.attempt, run.intent)
        if run.intent is Intent.GO or told in self._told:
            return
        run_dir = self._home.run(run.id)
        word = {"intent": run.intent.value.lower(), "reason": run.intent_reason, "at": time.time()}
        try:
            write_json(run_dir.closed, word)
            if run.attempt >= 0 and run.intent is Intent.STOP:
                create_once(run_dir.attempt(run.attempt).stop, {**word, "deadline": None})
        except OSError as error:
            return self._in_trouble(run, error)
        self._told.add(told)
        self._hurry()

    def _cancel(self, runs: list[Run]) -> None:
        now = time.monotonic()
        due = [
            run
            for run in runs
            if run.scheduler_job_id is not None and now - self._killed.get(run.id, -KILL_AGAIN) >= KILL_AGAIN
        ]
        if not due or now < self._not_before:
            return
        try:
            self._lease.check()
            self._scheduler.cancel([run.scheduler_job_id for run in due if run.scheduler_job_id is not None])
        except SchedulerUnavailable as error:
            return self._back_off(error)
        for run in due:
            self._killed[run.id] = now
        self._hurry()

    # --- listening

    def _look(self, run: Run) -> None:
        """Read what the run's attempts have written since the last look."""
        run_dir = self._home.run(run.id)
        try:
            while (found := self._next_attempt(run, run_dir)) is not None:
                self._start_attempt(run, run_dir, *found)
                run = self._live.get(run.id, run)
            if run.attempt < 0 or run.state is not RunState.RUNNING:
                return
            self._read_journal(run, run_dir)
            report = read_json(run_dir.attempt(run.attempt).end)
        except (OSError, RunDirError) as error:
            return self._in_trouble(run, error)
        if report is None:
            return
        if conclusive(run.intent, report):
            self._conclude(run, None)
            self._reusable.offer(run, report)
        elif run.id not in self._unsure:
            self._unsure[run.id] = time.monotonic()
            self._hurry()

    def _in_trouble(self, run: Run, error: Exception) -> None:
        """The directory of one run cannot be read or written: that is said once, and keeps nobody from the others."""
        if self._trouble.get(run.id) != str(error):
            self._trouble[run.id] = str(error)
            log.error("run %s: %s", run.id, error)

    def _next_attempt(self, run: Run, run_dir: RunDir) -> tuple[int, dict[str, Any]] | None:
        """The first later attempt that has started. One that was taken off its nodes too early has left nothing."""
        for k in range(run.attempt + 1, max(run.attempt + 1, self._restarts.get(run.id, 0)) + 1):
            started = read_json(run_dir.attempt(k).started)
            if started is not None:
                return k, started
        return None

    def _start_attempt(self, run: Run, run_dir: RunDir, k: int, started: dict[str, Any]) -> None:
        prior = {int(attempt): int(seq) for attempt, seq in (started.get("prior") or {}).items()}
        if run.attempt >= 0:
            # Also when its end is known: a node that the scheduler had given up may have written on.
            self._read_journal(run, run_dir, until=prior.get(run.attempt))
        if run.state is RunState.RUNNING and run.attempt >= 0:
            self._do(self._ended(run, run_dir, None, requeued=True))
            run = self._live.get(run.id, run)
        self._started[run.pool] = self._started.get(run.pool, 0) + 1
        if started.get("job_id") and str(started["job_id"]) != run.scheduler_job_id:
            self._do(events.Submitted(run.id, str(started["job_id"]), time.time()))
        self._do(
            events.AttemptStarted(
                run_id=run.id,
                attempt=k,
                nodes=[str(node) for node in started.get("nodes") or []],
                resumed_from=started.get("resumed_from"),
                resumed_steps=int(started.get("resumed_steps") or 0),
                at=float(started.get("at") or time.time()),
            )
        )

    def _read_journal(self, run: Run, run_dir: RunDir, until: int | None = None) -> None:
        attempt = self._ledger.state.attempt(run.id, run.attempt)
        path = run_dir.attempt(run.attempt).journal
        if attempt is None or _size(path) <= attempt.applied_offset:
            return
        found, offset = read_journal(path, attempt.applied_offset, attempt.applied_seq)
        reports = [report for report in found if until is None or report.seq <= until]
        whole = len(reports) == len(found)
        self._do(events.Reported(run.id, run.attempt, reports, time.time(), offset if whole else None))

    def _conclude(self, run: Run, record: JobRecord | None) -> None:
        """The job is over: take in all that it left, then say so."""
        run_dir = self._home.run(run.id)
        held_by = claimed_by(run_dir)
        if held_by not in (None, run.scheduler_job_id) and (record is not None or run.attempt < 0):
            assert held_by is not None
            return self._do(events.Submitted(run.id, held_by, time.time()))  # this was a surplus job
        if run.attempt >= 0 and run.state is RunState.RUNNING:
            self._read_journal(run, run_dir)
        if record is None and run.scheduler_job_id is not None:
            self._left.add(run.scheduler_job_id)
        # The scheduler may have queued the job again just then, or somebody may do so later: it shall not train once more.
        with contextlib.suppress(OSError):
            if not run_dir.closed.exists():
                write_json(
                    run_dir.closed, {"intent": "end", "reason": "it has ended", "at": time.time()}, durable=False
                )
        return self._do(self._ended(run, run_dir, record))

    def _ended(
        self, run: Run, run_dir: RunDir, record: JobRecord | None, *, requeued: bool = False
    ) -> events.AttemptEnded:
        """What is left of an attempt that is over."""
        report, asked = None, {}
        if run.attempt >= 0:
            with contextlib.suppress(RunDirError):
                report = read_json(run_dir.attempt(run.attempt).end)
            with contextlib.suppress(RunDirError):
                asked = read_json(run_dir.attempt(run.attempt).stop) or {}
        return events.AttemptEnded(
            run.id,
            run.attempt,
            report,
            record,
            time.time(),
            requeued=requeued,
            log_tail="" if report or requeued else _why_no_report(run_dir),
            asked=str(asked.get("reason") or ""),
            rest=self._pace.rest,
            down=self._down(run) if requeued and not (record is not None and record.preempted) else (),
        )

    def _down(self, run: Run) -> tuple[str, ...]:
        """Nodes of the run that are down: a reason why the scheduler queued its job again, which it does not tell itself."""
        at, down = self._nodes_down
        if time.monotonic() - at > self._pace.fastest_poll:
            try:
                down = frozenset(node.name for node in self._scheduler.nodes() if not usable(node))
            except SchedulerUnavailable:
                down = frozenset()
            self._nodes_down = (time.monotonic(), down)
        return tuple(name for name in run.nodes if name in down)

    # --- asking the scheduler

    def _poll(self) -> None:
        try:
            listed = self._scheduler.jobs()
            known = [run for run in self._live.values() if run.scheduler_job_id is not None]
            ids = [run.scheduler_job_id for run in known if run.scheduler_job_id is not None]
            missing = [job_id for job_id in ids if job_id not in listed]
            gone = self._scheduler.records(missing) if missing else {}
            nodes = self._scheduler.nodes() if self._something_waits() else []
        except SchedulerUnavailable as error:
            return self._back_off(error)
        finally:
            self._next_poll = time.monotonic() + self._poll_interval
            self._poll_interval = min(self._pace.slowest_poll, self._poll_interval * 2)
        self._not_before = 0.0
        self.silence = ""
        for run in known:
            self._look(run)
            current = self._live.get(run.id)
            if current is None or current.scheduler_job_id is None:
                continue
            try:
                self._compare(current, listed.get(current.scheduler_job_id) or gone.get(current.scheduler_job_id))
            except SchedulerUnavailable as error:
                return self._back_off(error)
            except (OSError, RunDirError) as error:
                self._in_trouble(run, error)
        self._tend_queue(listed, nodes)
        try:
            self._hasten(listed)
            self._clear_away(listed)
        except SchedulerUnavailable as error:
            self._back_off(error)

    def _something_waits(self) -> bool:
        return self._ledger.state.places.count > 0 or any(
            run.state is not RunState.RUNNING for run in self._live.values()
        )

    def _tend_queue(self, listed: Mapping[str, JobRecord], nodes: Sequence[NodeInfo]) -> None:
        """Let the engine see what waits and what is free, and bring our jobs in the scheduler's queue into its order."""
        waiting: dict[str, PendingJob] = {}
        for run in self._live.values():
            record = listed.get(run.scheduler_job_id or "")
            if record is not None and record.state is JobState.PENDING and record.priority and record.nice is not None:
                waiting[run.id] = PendingJob(record.priority, record.nice)
        if not waiting and not nodes:
            return
        by_pool: dict[str, list[tuple[int, int]]] = {}
        for node in nodes:
            for pool in node.pools:
                works = node.state in ("idle", "mixed", "allocated", "completing")
                by_pool.setdefault(pool, []).append((node.slots - node.slots_used if works else 0, node.slots))
        started, self._started = self._started, {}
        self._do(events.QueueSeen(by_pool, started, waiting, time.time()))
        live = [(self._live[id], seen.nice) for id, seen in waiting.items() if id in self._live]
        changed = {str(run.scheduler_job_id): run.nice for run, now in live if run.nice != now}
        if not changed:
            return
        try:
            self._lease.check()
            self._scheduler.nice(changed)
            self._hurry()
        except SchedulerUnavailable as error:
            self._back_off(error)

    def _hasten(self, listed: Mapping[str, JobRecord]) -> None:
        """Slurm holds a requeued job back for two minutes. Once for each requeue: who sets another time by hand is obeyed."""
        held: dict[tuple[str, int], str] = {}
        for run in self._live.values():
            record = listed.get(run.scheduler_job_id or "")
            if record is not None and record.restarts and run.intent is Intent.GO:
                if record.state is JobState.PENDING and record.reason == "BeginTime":
                    held[run.id, record.restarts] = record.job_id
        due = [key for key in held if key not in self._hastened][:SUBMIT_AT_ONCE]
        if due:
            self._lease.check()
            self._scheduler.start_now([held[key] for key in due])
            self._hastened.update(due)
            self._hurry()

    def _clear_away(self, listed: Mapping[str, JobRecord]) -> None:
        """Jobs of runs that have ended: the scheduler may have queued one again at the very moment."""
        self._left &= {job_id for job_id, record in listed.items() if record.state.live}
        wanted = {run.scheduler_job_id for run in self._live.values()}  # of short runs several have one job
        queued = [j for j in self._left if listed[j].state is JobState.PENDING and j not in wanted]
        if queued:
            self._lease.check()
            self._scheduler.cancel(queued)

    def _compare(self, run: Run, record: JobRecord | None) -> None:
        if record is None:
            if self._waited(run, self._scheduler.settle):
                self._conclude(run, None)
            return
        if record.state is JobState.COMPLETING:
            self._hurry()
            return
        if not record.state.live:
            # Files of a compute node may arrive a little after the scheduler's word.
            expected = record.state is not JobState.COMPLETED or self._report_is_there(run)
            if expected or self._waited(run, min(5.0, self._scheduler.settle)):
                self._conclude(run, record)
            return
        self._restarts[run.id] = record.restarts
        if run.state is RunState.RUNNING and 0 <= run.attempt < record.restarts:
            self._requeued(run, record)
        else:
            self._unsure.pop(run.id, None)
            self._do(events.JobSeen(run.id, record, time.time()))

    def _requeued(self, run: Run, record: JobRecord) -> None:
        run_dir = self._home.run(run.id)
        if self._next_attempt(run, run_dir) is None:
            self._read_journal(run, run_dir)
            if run.intent is not Intent.GO:
                self._lease.check()
                self._scheduler.cancel([record.job_id])  # nobody wants its next start
            attempt = self._ledger.state.attempt(run.id, run.attempt)
            since = attempt.started_at if attempt is not None else 0.0
            preempted = record.preempted_at is not None and record.preempted_at >= since - CLOCKS
            self._do(self._ended(run, run_dir, replace(record, preempted=preempted), requeued=True))

    def _report_is_there(self, run: Run) -> bool:
        return run.attempt >= 0 and self._home.run(run.id).attempt(run.attempt).end.exists()

    def _waited(self, run: Run, seconds: float) -> bool:
        first = self._unsure.setdefault(run.id, time.monotonic())
        self._hurry()
        return time.monotonic() - first >= seconds

    def _hurry(self) -> None:
        """Something is about to change: ask again as soon as the pace allows."""
        self._poll_interval = self._pace.fastest_poll
        self._next_poll = min(self._next_poll, time.monotonic() + self._pace.fastest_poll)

    def _back_off(self, error: SchedulerUnavailable) -> None:
        self.silence = str(error)
        log.warning("the scheduler does not answer: %s", error)
        self._not_before = time.monotonic() + self._pace.fastest_poll


def _place(row: Experiment) -> tuple[object, ...]:
    """What its runs' order in the scheduler's queue follows from."""
    return row.pool, row.priority, row.queue_position, row.weight


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _why_no_report(run_dir: RunDir) -> str:
    """What can be found out about a job that left no end report; empty when nothing can."""
    try:
        room = os.statvfs(run_dir.path)
        if room.f_bavail == 0 or (room.f_files and room.f_favail == 0):
            return f"No space left on the file system of {run_dir.path}"
    except OSError:
        pass
    return _tail(run_dir.log)


def _tail(path: Path, lines: int = 5) -> str:
    """The last lines of a small log as one line; empty when there is none."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    return " / ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())
