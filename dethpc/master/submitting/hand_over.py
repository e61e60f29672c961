"""Jobs go to the scheduler in the order of their runs: those that are alike and follow each other as one job array, others alone.

An array costs the scheduler one request, whatever its size. It is refused as a whole, and then its jobs go alone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRequest
from dethpc.engine import events
from dethpc.errors import SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from dethpc.master.parts import Parts
from dethpc.master.submitting.holds import job_of
from dethpc.master.submitting.job_reuse import ReusableJobs
from dethpc.master.watching.live_runs import LiveRun
from dethpc.master.watching.trouble import Trouble, everybodys
from dethpc.master.watching.watch import Watch
from dethpc.rundir.files import sealed, write_json

log = logging.getLogger(__name__)

PREPARE_AHEAD = 5
"""Submissions whose run directories are written while others are under way."""

SUBMITTING = "submitting"
"""File in the run directory: its job was, or was about to be, handed over: ``{"at", "scheduler", "name"}``, the scheduler's
identity and the name of the array where it was to be an element."""

DISK_FAILS = 3
"""How many run directories must refuse to be written before no others are tried."""

ALONE_FOR = 600.0
"""Seconds in which no array is tried of an experiment that had one refused and single jobs taken."""

GATHER_FOR, GATHERS_AT_LEAST = 0.3, 8
"""Seconds in which an array gathers its jobs, for the first one is not to wait long for the directories of the last; and how many
it gathers however long they take, as a busy machine is not to be given single jobs for that."""

MakeJob = Callable[[Run], JobRequest]
"""Writes the run's directory and returns its job. Raises SubmitRejected and SubmitDeferred where there can be none, never or not
at present; OSError."""

Prepare = Callable[[Sequence[Run]], MakeJob]

Answer = events.Submitted | events.SubmitDeferred | events.SubmitFailed | events.AttemptEnded

Group = list[tuple[LiveRun, JobRequest]]
"""What is submitted together."""


@dataclass(slots=True)
class Batch:
    """Submissions of one cycle. Several threads append to it."""

    answers: list[Answer] = field(default_factory=list)
    refused: list[tuple[LiveRun, SubmitDeferred | SubmitRejected]] = field(default_factory=list)
    unwritable: list[tuple[LiveRun, Exception]] = field(default_factory=list)
    stopped_by: SchedulerUnavailable | SubmitUncertain | None = None  # nothing more is submitted after this

    def defers(self, run: Run) -> bool:
        """Whether the scheduler has just said of another run like this one that it takes none at present."""
        return any(isinstance(why, SubmitDeferred) and job_of(live.run) == job_of(run) for live, why in self.refused)

    @property
    def disk_fails(self) -> bool:
        """Whether the file system is to blame: what is wrong with one run's directory alone lets the others pass."""
        return sum(isinstance(error, OSError) for _, error in self.unwritable) >= DISK_FAILS


class HandOver:
    """``prepare`` makes run directories and returns the jobs to submit."""

    def __init__(self, parts: Parts, watch: Watch, prepare: Prepare, reusable: ReusableJobs, trouble: Trouble) -> None:
        self._ledger = parts.ledger
        self._scheduler = parts.scheduler
        self._lease = parts.lease
        self._cadence = watch.cadence
        self._arrays = watch.arrays
        self._foreign = watch.foreign
        self._prepare = prepare
        self._reusable = reusable
        self._trouble = trouble
        self._alone_until: dict[int | str, float] = {}  # whose arrays were refused -> monotonic

    def submit(self, fresh: Sequence[LiveRun], batch: Batch) -> None:
        """Submit in order, a few at the same time, and write run directories meanwhile. Raises LeaseHeld.

        Stops where the scheduler gives no answer, where the file system takes no directories, and when it has taken long.
        """
        under_way: deque[Future[None]] = deque()
        with ThreadPoolExecutor(self._cadence.pace.submit_at_once, "submit") as threads:
            for group in self._groups(fresh, batch):
                under_way.append(threads.submit(self._submit_group, group, batch))
                if len(under_way) > PREPARE_AHEAD:
                    under_way.popleft().result()
        for future in under_way:
            future.result()

    # --- what goes together

    def _groups(self, fresh: Sequence[LiveRun], batch: Batch) -> Iterator[Group]:
        until = time.monotonic() + self._cadence.pace.submit_for
        group: Group = []
        began = 0.0
        for live, job in self._prepared(fresh, batch):
            if group and not self._joins(group, live, job):
                yield group
                group = []
            began = began if group else time.monotonic()
            group.append((live, job))
            now = time.monotonic()
            enough = len(group) >= GATHERS_AT_LEAST and now - began >= GATHER_FOR
            if not job.alike or enough or now >= until:
                yield group
                group = []
            if now >= until:
                return
        if group:
            yield group

    def _joins(self, group: Group, live: LiveRun, job: JobRequest) -> bool:
        """Whether the job can be one more element of the array that begins with these."""
        first, like = group[0]
        return (
            like.alike == job.alike != ""
            and like.env == job.env
            and job_of(first.run) == job_of(live.run)
            and len(group) < self._largest_array(first.run)
        )

    def _largest_array(self, run: Run) -> int:
        """1: jobs of this kind go alone."""
        smallest = self._cadence.pace.smallest_array
        if not smallest or time.monotonic() < self._alone_until.get(job_of(run), 0.0):
            return 1
        try:
            most = self._scheduler.largest_array
        except SchedulerUnavailable:
            return 1  # sbatch will say the same
        return most if most >= smallest else 1

    def _prepared(self, fresh: Sequence[LiveRun], batch: Batch) -> Iterator[tuple[LiveRun, JobRequest]]:
        """Runs with their jobs, each when it is asked for; of those that need no submission, the answer goes to the batch."""
        make_job = self._prepare([live.run for live in fresh])
        for live in fresh:
            if batch.stopped_by is not None or batch.disk_fails:
                return
            run = live.run
            try:
                job = make_job(run)
            except SubmitRejected as error:
                self._trouble.tell(live, f"no job can be made of it: {error}")
                batch.answers.append(events.SubmitFailed(run.id, str(error), time.time()))
            except SubmitDeferred as error:
                batch.refused.append((live, error))
            except SchedulerUnavailable as error:
                batch.stopped_by = error
            except Exception as error:
                if everybodys(error):
                    raise
                batch.unwritable.append((live, error))
            else:
                if (job_id := self._reuse(live, job)) is not None:
                    batch.answers.append(events.Submitted(run.id, job_id, time.time(), self._foreign.here()))
                else:
                    yield live, job

    def _reuse(self, live: LiveRun, job: JobRequest) -> str | None:
        """The job that has room for the run, if one has. One that cannot be told counts as none: the run gets a job of its own."""
        try:
            return self._reusable.take(live.run, self._ledger.state, job.script)
        except OSError as error:
            log.warning("run %s could not be given to a job that is there: %s", live.run.id, error)
            return None

    # --- to the scheduler

    def _submit_group(self, group: Group, batch: Batch) -> None:
        if batch.stopped_by is not None or batch.defers(group[0][0].run):
            return
        if len(group) >= max(2, self._cadence.pace.smallest_array) and self._submit_array(group, batch):
            return
        for live, job in group:
            self._submit_one(live, job, batch)

    def _submit_array(self, group: Group, batch: Batch) -> bool:
        """False: these jobs have to go alone."""
        jobs = [job for _, job in group]
        try:
            here = self._foreign.here()
            array = self._arrays.make(jobs)
            self._lease.check()
            for live, job in group:
                _mark(live, job, here, name=array.name)
        except SchedulerUnavailable as error:
            batch.stopped_by = error
            return True
        except OSError as error:
            log.warning("runs %s to %s go alone, not as an array: %s", jobs[0].run_id, jobs[-1].run_id, error)
            return False
        try:
            job_ids = self._scheduler.submit_array(array)
        except (SubmitDeferred, SubmitRejected) as error:
            self._arrays.drop(array.folder.name)
            for live, job in group:
                _unmark(live, job)
            self._go_alone(group, batch, error)
            return True
        except Exception as error:
            for live, _ in group:
                self._unanswered(live, error, batch)
            return True
        at = time.time()
        for (live, _), job_id in zip(group, job_ids):
            live.unclear_since = at  # until its row has the id: that may not be committed
            batch.answers.append(events.Submitted(live.run.id, job_id, at, here))
        return True

    def _go_alone(self, group: Group, batch: Batch, why: Exception) -> None:
        """What was refused as an array may be taken one by one: a limit leaves room for some, or there are no arrays here."""
        before = len(batch.answers)
        for live, job in group:
            self._submit_one(live, job, batch)
        if len(batch.answers) > before:
            first, last = group[0][0].run, group[-1][0].run
            self._alone_until[job_of(first)] = time.monotonic() + ALONE_FOR
            message = (
                "runs %s to %s were refused as one job array (%s) and go one by one, as do the next ones for %g minutes"
            )
            log.warning(message, first.id, last.id, why, ALONE_FOR / 60)

    def _submit_one(self, live: LiveRun, job: JobRequest, batch: Batch) -> None:
        if batch.stopped_by is not None or batch.defers(live.run):
            return
        self._lease.check()
        try:
            here = self._foreign.here()
            _mark(live, job, here)
        except SchedulerUnavailable as error:
            batch.stopped_by = error
            return
        except OSError as error:
            batch.unwritable.append((live, error))
            return
        try:
            job_id = self._scheduler.submit(job)
            live.unclear_since = time.time()  # until its row has the id: that may not be committed
            batch.answers.append(events.Submitted(live.run.id, job_id, time.time(), here))
        except (SubmitDeferred, SubmitRejected) as error:
            _unmark(live, job)
            batch.refused.append((live, error))
        except Exception as error:
            self._unanswered(live, error, batch)

    def _unanswered(self, live: LiveRun, error: Exception, batch: Batch) -> None:
        """Its job may exist. Counted from the answer: the scheduler may have begun with it only then.

        Raises what is everybody's.
        """
        if isinstance(error, (SubmitUncertain, SchedulerUnavailable)):
            batch.stopped_by = error
            log.warning("run %s: %s; its job will be looked up", live.run.id, error)
        elif everybodys(error):
            raise error
        else:
            batch.unwritable.append((live, error))
        live.unclear_since = time.time()


def _mark(live: LiveRun, job: JobRequest, scheduler: str, **more: str) -> None:
    """Say in the run's directory that its job is handed over now, and to whom. Raises OSError."""
    # Not on disk yet: should the machine stop now, the claim still lets only one job of the run train.
    note = sealed({"at": time.time(), "scheduler": scheduler, **more})
    write_json(job.run_dir / SUBMITTING, note, durable=False)
    live.handed_to = scheduler


def _unmark(live: LiveRun, job: JobRequest) -> None:
    """The scheduler has taken no job of it: a master that serves another one may submit it there."""
    live.handed_to = ""
    try:
        (job.run_dir / SUBMITTING).unlink(missing_ok=True)
    except OSError as error:
        log.warning("run %s: %s cannot be removed: %s", live.run.id, job.run_dir / SUBMITTING, error)
