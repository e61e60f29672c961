"""Runs that are wanted become jobs, each once.

Before a job is handed over, its run directory says so. Where the scheduler's answer is lost, the run is unclear until the claim or
the scheduler shows its job, or until the time is over in which the job may still appear and a second look finds none. The jobs of
all unclear runs are looked up together, when the scheduler is asked anyway.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRequest, Scheduler
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.errors import SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.runs import place
from dethpc.master.runs.holds import Hold, Holds, job_of, taken_before
from dethpc.master.runs.live import Cadence, LiveRun, LiveRuns
from dethpc.master.runs.reuse import ReusableJobs
from dethpc.master.runs.trouble import LONGEST_REST, TRIES_OF_A_DISK, Trouble, everybodys
from dethpc.rundir.claim import claimed_by
from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.home import Home

log = logging.getLogger(__name__)

SUBMIT_AT_ONCE = 25
"""Submissions in a row, before anything else is looked at."""

PREPARE_AT_ONCE = 5
"""Run directories that are written at once; the next ones while these are submitted."""

SUBMITTING = "submitting"
"""File in the run directory: its job was, or was about to be, handed to the scheduler at this time."""

TRIES_TO_WRITE = 5
"""How many failures to write its run directory a trial may have before it is given up, unless the file system is to blame:
then as many as all that files are needed for."""

Prepare = Callable[[Sequence[Run]], Mapping[str, JobRequest | SubmitRejected | SubmitDeferred]]
OnRefused = Callable[[Run, str], None]
"""Hears that the scheduler does not take the job of a run at present, and why; on the reconciler's thread."""

_Answer = events.Submitted | events.SubmitDeferred | events.SubmitFailed | events.AttemptEnded


@dataclass(slots=True)
class _Batch:
    """Submissions of one cycle. Several threads append to it."""

    answers: list[_Answer] = field(default_factory=list)
    refused: list[tuple[LiveRun, SubmitDeferred | SubmitRejected]] = field(default_factory=list)
    unwritable: list[tuple[LiveRun, Exception]] = field(default_factory=list)
    stopped_by: SchedulerUnavailable | SubmitUncertain | None = None  # nothing more is submitted after this

    def defers(self, run: Run) -> bool:
        """Whether the scheduler has just said of another run like this one that it takes none at present."""
        return any(isinstance(why, SubmitDeferred) and job_of(live.run) == job_of(run) for live, why in self.refused)

    @property
    def disk_fails(self) -> bool:
        return any(isinstance(error, OSError) for _, error in self.unwritable)


class Submitter:
    """``prepare`` makes run directories and returns the jobs to submit."""

    def __init__(
        self,
        runs: LiveRuns,
        cadence: Cadence,
        ledger: Ledger,
        scheduler: Scheduler,
        home: Home,
        lease: Lease,
        prepare: Prepare,
        reusable: ReusableJobs,
        holds: Holds,
        on_refused: OnRefused,
        trouble: Trouble,
    ) -> None:
        self._runs, self._cadence, self._ledger = runs, cadence, ledger
        self._scheduler, self._home, self._lease = scheduler, home, lease
        self._prepare, self._reusable, self._trouble = prepare, reusable, trouble
        self._holds, self._on_refused = holds, on_refused

    def submit(self) -> None:
        """Hand the next wanted runs to the scheduler. Raises LeaseHeld."""
        batch = _Batch()
        fresh = self._fresh(batch) if self._cadence.may_submit() else []
        if fresh:
            self._hand_over(fresh, batch)
        given_up = [answer for live, error in batch.unwritable for answer in self._cannot_write(live, error)]
        for committed in [self._ledger.post(answer) for answer in [*batch.answers, *given_up]]:
            committed.result()
        self._runs.take_in()
        self._take_refusals(batch)
        if isinstance(batch.stopped_by, SchedulerUnavailable):
            self._cadence.unanswered(batch.stopped_by)
        elif isinstance(batch.stopped_by, SubmitUncertain):
            self._cadence.submission_unclear(batch.stopped_by)
        elif fresh and not batch.unwritable:
            self._cadence.submitted()
        if batch.answers or batch.stopped_by is not None:
            self._cadence.poll_soon()

    def _take_refusals(self, batch: _Batch) -> None:
        """A refusal that meets what was taken before, and what the site has closed for a while, hold the experiment."""
        taken = [self._runs.get(answer.run_id) for answer in batch.answers if isinstance(answer, events.Submitted)]
        for live in filter(None, taken):
            live.refusal = ""
            self._holds.taken(live.run)
        for live, error in batch.refused:
            if isinstance(error, SubmitRejected) and not taken_before(live.run, self._ledger.state):
                self._trouble.tell(live, f"the job was refused for good: {error}")
                self._runs.do(events.SubmitFailed(live.run.id, str(error), time.time()))
                continue
            live.refused_at = time.monotonic()
            self._runs.do(events.SubmitDeferred(live.run.id, str(error), time.time()))
            if live.refusal != str(error):
                live.refusal = str(error)
                log.warning("run %s is submitted again later: %s", live.run.id, error)
                self._on_refused(live.run, str(error))
        for live in {job_of(live.run): live for live, _ in batch.refused if live.refusal}.values():
            self._holds.refused(live.run, live.refusal)

    def _fresh(self, batch: _Batch) -> list[LiveRun]:
        """The next runs that have no job and can have none; of what is held one, the longest not tried."""
        fresh: list[LiveRun] = []
        tries: dict[Hold, LiveRun] = {}
        now = time.monotonic()
        self._holds.keep({job_of(live.run) for live in self._runs.all() if live.run.state is RunState.SUBMITTING})
        for live in self._runs.all():
            if live.run.state is not RunState.SUBMITTING or time.monotonic() < live.rests_until.get(SUBMITTING, 0.0):
                continue
            hold = self._holds.of(live.run)
            if hold is not None and live.run.intent is Intent.GO:
                held = tries.get(hold)
                if now >= hold.next_try and (held is None or self._tried_at(live) < self._tried_at(held)):
                    tries[hold] = live
                continue
            if self._may_be_tried(live, batch):
                fresh.append(live)
            if len(fresh) == SUBMIT_AT_ONCE:
                break
        return fresh + [live for live in tries.values() if self._may_be_tried(live, batch)]

    def _tried_at(self, live: LiveRun) -> tuple[float, float]:
        """When its job was last tried, and when it was itself."""
        return self._holds.last_try(live.run), live.refused_at

    def _may_be_tried(self, live: LiveRun, batch: _Batch) -> bool:
        try:
            return self._needs_a_job(live)
        except place.Occupied as error:
            self._runs.do(events.SubmitFailed(live.run.id, str(error), time.time()))
            return False
        except Exception as error:
            if everybodys(error):
                raise
            batch.unwritable.append((live, error))
            return False

    def _needs_a_job(self, live: LiveRun) -> bool:
        """False: it has a job, or may have one, or nobody wants it any more. Asks files alone.

        Raises OSError; RunDirError, Occupied when another run's files are in its place.
        """
        run, state = live.run, self._ledger.state
        run_dir = self._home.run(run.id)
        held_by = claimed_by(run_dir)
        if not live.earlier_submission_read:
            place.check(run_dir, self._lease.cluster_id, run, state.tasks.get(run.task_id), state.trial_of(run))
        if held_by is not None:
            self._runs.do(events.Submitted(live.run.id, held_by, time.time()))
            return False
        if not live.earlier_submission_read:
            earlier = read_json(run_dir.path / SUBMITTING)
            live.unclear_since = float(earlier["at"]) if earlier is not None else None
            live.earlier_submission_read = True
        if live.unclear_since is not None:
            self._cadence.poll_soon()
            return False
        if live.run.intent is not Intent.GO:
            self._runs.do(events.AttemptEnded(live.run.id, -1, None, None, time.time()))
            return False
        return True

    def _hand_over(self, fresh: Sequence[LiveRun], batch: _Batch) -> None:
        """Submit in order, a few at the same time, and write run directories meanwhile. Raises LeaseHeld.

        Stops where the scheduler gives no answer, or the file system does not take a directory.
        """
        under_way: list[Future[None]] = []
        with ThreadPoolExecutor(self._cadence.pace.submit_at_once, "submit") as threads:
            for start in range(0, len(fresh), PREPARE_AT_ONCE):
                if batch.stopped_by is not None or batch.disk_fails:
                    break
                for live, job in self._prepared(fresh[start : start + PREPARE_AT_ONCE], batch):
                    under_way.append(threads.submit(self._submit_one, live, job, batch))
        for future in under_way:
            future.result()

    def _prepared(self, some: Sequence[LiveRun], batch: _Batch) -> Iterator[tuple[LiveRun, JobRequest]]:
        """Runs with their jobs; of those that need no submission, the answer goes to the batch."""
        try:
            jobs = self._prepare([live.run for live in some])
        except SchedulerUnavailable as error:
            batch.stopped_by = error
            return
        except Exception as error:
            if everybodys(error):
                raise
            if len(some) > 1:  # one of them may be to blame
                for live in some:
                    yield from self._prepared([live], batch)
            else:
                batch.unwritable.append((some[0], error))
            return
        for live in some:
            run, job = live.run, jobs[live.run.id]
            if isinstance(job, SubmitRejected):
                self._trouble.tell(live, f"no job can be made of it: {job}")
                batch.answers.append(events.SubmitFailed(run.id, str(job), time.time()))
            elif isinstance(job, SubmitDeferred):
                batch.refused.append((live, job))
            elif (job_id := self._reuse(live, job)) is not None:
                batch.answers.append(events.Submitted(run.id, job_id, time.time()))
            else:
                yield live, job

    def _reuse(self, live: LiveRun, job: JobRequest) -> str | None:
        """The job that has room for the run, if one has. One that cannot be told counts as none: the run gets a job of its own."""
        try:
            return self._reusable.take(live.run, self._ledger.state, job.script)
        except OSError as error:
            log.warning("run %s could not be given to a job that is there: %s", live.run.id, error)
            return None

    def _submit_one(self, live: LiveRun, job: JobRequest, batch: _Batch) -> None:
        if batch.stopped_by is not None or batch.defers(live.run):
            return
        self._lease.check()
        try:
            # Not on disk yet: should the machine stop now, the claim still lets only one job of the run train.
            write_json(job.run_dir / SUBMITTING, {"at": time.time()}, durable=False)
        except OSError as error:
            batch.unwritable.append((live, error))
            return
        try:
            batch.answers.append(events.Submitted(live.run.id, self._scheduler.submit(job), time.time()))
        except (SubmitDeferred, SubmitRejected) as error:
            batch.refused.append((live, error))
        except (SubmitUncertain, SchedulerUnavailable) as error:
            # Counted from the answer: the scheduler may have begun with it only then.
            live.unclear_since = time.time()
            batch.stopped_by = error
            log.warning("run %s: %s; its job will be looked up", live.run.id, error)
        except Exception as error:
            if everybodys(error):
                raise
            live.unclear_since = time.time()
            batch.unwritable.append((live, error))

    def _cannot_write(self, live: LiveRun, error: Exception) -> list[_Answer]:
        """A full or failing file system may recover, but a run that waits for it for ever helps nobody.

        What is wrong with one run's directory alone lets the others pass.
        """
        words = f"the run directory cannot be written: {error}"
        log.warning("run %s: %s", live.run.id, words, exc_info=None if isinstance(error, OSError) else error)
        unwanted, most, rest = live.run.intent is not Intent.GO, TRIES_TO_WRITE, self._cadence.pace.fastest_poll
        if isinstance(error, OSError):
            self._cadence.submit_later()
            if not unwanted:
                most, rest = TRIES_OF_A_DISK, min(LONGEST_REST, rest * 2 ** min(live.write_failures, 10))
        live.rests_until[SUBMITTING] = time.monotonic() + rest
        live.write_failures += 1
        if live.write_failures < most and not (unwanted and not isinstance(error, OSError)):
            if live.in_trouble(words):
                self._trouble.tell(live, f"{words}; the master tries again, {most} times in all")
                # The trial's log may lie on the same disk: its row says it as well.
                return [] if unwanted else [events.SubmitDeferred(live.run.id, words, time.time())]
            return []
        if unwanted:
            return [events.AttemptEnded(live.run.id, -1, None, None, time.time())]
        return [events.SubmitFailed(live.run.id, words, time.time())]
