"""Run directories: what attempts wrote into them since they were last read, and what is left when a job is over."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRecord
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.engine.ends import NO_SPACE, conclusive, ended_at
from dethpc.errors import RunDirError, SchedulerUnavailable
from dethpc.master.parts import Parts
from dethpc.master.submitting.job_reuse import ReusableJobs
from dethpc.master.watching import milestones
from dethpc.master.watching.journals import Journals, size_of
from dethpc.master.watching.live_runs import Leftover, LiveRun
from dethpc.master.watching.milestones import Milestone
from dethpc.master.watching.trouble import close, everybodys, tell, write
from dethpc.master.watching.watch import Watch
from dethpc.master.watching.worker_reports import WorkerReports
from dethpc.rundir.claim import claimed_by
from dethpc.rundir.files import exists, open_regular
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir
from dethpc.rundir.started import Started

log = logging.getLogger(__name__)

_LOG_TAIL = 4096  # bytes: a user's script may have written anything into the log of its job


class Reader:
    """Tells the engine what run directories say."""

    def __init__(
        self, parts: Parts, watch: Watch, journals: Journals, reusable: ReusableJobs, reports: WorkerReports
    ) -> None:
        self._home = parts.home
        self._view = parts.cluster
        self._runs = watch.runs
        self._cadence = watch.cadence
        self._journals = journals
        self._reusable = reusable
        self._worker_reports = reports

    def look(self, live: LiveRun) -> None:
        """``read_run_dir``, if it is time for that."""
        if live.poll_interval.is_due():
            self.read_run_dir(live)

    def read_run_dir(self, live: LiveRun) -> None:
        """Take in what the run's attempts have written since the last time. Raises OSError, RunDirError."""
        poll_interval, pace = live.poll_interval, self._cadence.pace
        poll_interval.begin()
        try:
            news = self._read(live)
        except Exception:
            poll_interval.go_on()
            raise
        poll_interval.done(news, pace.files, pace.quiet)

    def _read(self, live: LiveRun) -> bool:
        """Returns whether there was anything new."""
        run_dir, started = self._home.run(live.run.id), False
        while live.run.state is not RunState.ENDED and (next_attempt := self.next_attempt(live)) is not None:
            if not self._start_attempt(live, *next_attempt):
                return True
            started = True
        run = live.run
        if live.remains is not None and not live.remains.whole and not self._journals.read_remains(live):
            return True  # a client knows of its end, and waits for this
        if run.attempt < 0 or run.state is not RunState.RUNNING:
            return started
        reported = self._journals.read(live)
        if self._worker_reports.take_in(run):
            live.poll_interval.others = reported = True
        report = run_dir.attempt(run.attempt).end_report()
        if report is None:
            return started or reported
        if conclusive(run, report):
            if self.conclude(live, None):
                self._reusable.offer(run, report)
        elif live.unconfirmed_since is None:
            live.unconfirmed_since = time.monotonic()
            self._cadence.poll_soon()
        return True

    def next_attempt(self, live: LiveRun) -> tuple[int, Started] | None:
        """The first later attempt that has started. One that was taken off its nodes too early has left nothing.

        While one runs, only where somebody has told of a restart.
        """
        run_dir, first = self._home.run(live.run.id), live.run.attempt + 1
        if live.run.state is RunState.RUNNING and first > live.restarts and not live.poll_interval.every_attempt:
            return None
        for k in range(first, max(first, live.restarts) + 1):
            started = run_dir.attempt(k).start_report()
            if started is not None:
                return k, started
        return None

    def _start_attempt(self, live: LiveRun, k: int, started: Started) -> bool:
        """Returns whether the attempt before it has been read to its end; if not, the next look goes on with that."""
        run = live.run
        # Even when its end is known: a node that the scheduler had given up may have written on.
        if run.attempt >= 0 and not self._journals.read_remains(live, until=started.prior.get(run.attempt)):
            return False
        if run.attempt >= 0:
            self._worker_reports.take_in(run, over=True)
        if run.state is RunState.RUNNING and run.attempt >= 0:
            self._runs.do(self.ended(live, None, requeued=True, by=started.at))
        self._runs.started[run.pool] += 1
        live.poll_interval.others = False
        # Its own time, or a start that is seen late would stand behind the end.
        at = min(started.at or math.inf, time.time())
        self._tell_milestone(run, k, milestones.of_start(run, k, started), at)
        self._tell_milestone(run, k, milestones.of_going_on(run, started, self._runs.last_attempt(run)), at)
        if started.job_id and started.job_id != live.run.scheduler_job_id:
            self._runs.do(events.Submitted(run.id, started.job_id, time.time()))
        self._runs.do(
            events.AttemptStarted(
                run_id=run.id,
                attempt=k,
                nodes=started.nodes,
                resumed_from=started.resumed_from,
                resumed_steps=started.resumed_steps,
                at=started.at or time.time(),
            )
        )
        return True

    def grows(self, live: LiveRun) -> bool:
        """Whether the attempt has written anything since the last call for a run whose job is missed. Its nodes live then."""
        if live.run.attempt < 0:
            return False
        attempt = self._home.run(live.run.id).attempt(live.run.attempt)
        sizes = (size_of(attempt.journal), *(size_of(attempt.log(node)) for node in attempt.nodes_with_logs()))
        before, live.grown = live.grown, sizes
        return bool(before) and sizes != before

    def report_is_there(self, run: Run) -> bool:
        return run.attempt >= 0 and size_of(self._home.run(run.id).attempt(run.attempt).end) > 0

    def has_begun(self, run: Run) -> bool:
        """Whether a job of the run ever started, as far as anything says so."""
        run_dir = self._home.run(run.id)
        return run.attempt >= 0 or run_dir.claim.exists() or bool(run_dir.attempts())

    def is_closed(self, run_id: str) -> bool:
        """Whether the run was concluded, by this master or one before. False where nobody can say."""
        with contextlib.suppress(OSError):
            return exists(self._home.find(run_id).closed)
        return False

    # --- the end

    def conclude(
        self, live: LiveRun, record: JobRecord | None, commit: Callable[[events.Event], object] | None = None
    ) -> bool:
        """The job is over: take in all that it left, then say so. ``record``: the scheduler's, where it is known. ``commit``: how
        its end is committed, at once by default.

        False: that is much, and others come first; to be called again.
        """
        run, run_dir = live.run, self._home.run(live.run.id)
        with self._passed_over_when_killed(run):
            held_by = _held_by(self._home, live)
            if held_by is not None and held_by != run.scheduler_job_id and (record is not None or run.attempt < 0):
                self._runs.do(events.Submitted(run.id, held_by, time.time()))  # this was a surplus job
                return True
        with self._passed_over_when_killed(run):  # what the attempt reported counts, whatever else is damaged
            # Of a job that was queued again, too: its node may have gone on to the end.
            if run.attempt >= 0 and not self._journals.read_remains(live):
                return False
            if run.attempt >= 0:
                self._worker_reports.take_in(run, over=True)
        if record is None and run.scheduler_job_id is not None:
            self._runs.leftover_jobs[run.scheduler_job_id] = Leftover(run.id, lost=not self.report_is_there(run))
        close(run_dir)
        ended = self.ended(live, record)
        if run.attempt >= 0:
            at = ended_at(run.created_at, ended.report, record, ended.at)
            self._tell_milestone(run, run.attempt, milestones.of_end(ended.report, record), at)
            self._tell_milestone(run, run.attempt, milestones.of_no_retry(ended), at)
        (commit or self._runs.do)(ended)
        return True

    def _tell_milestone(self, run: Run, k: int, milestone: Milestone | None, at: float | None = None) -> None:
        """``at``: when it was passed; None: just now."""
        if milestone is not None:
            write(self._home, run.id, k, milestone.message, milestone.level, at)

    @contextlib.contextmanager
    def _passed_over_when_killed(self, run: Run) -> Iterator[None]:
        """The end of a run that was killed waits for nothing that cannot be read."""
        try:
            yield
        except Exception as error:
            if run.intent is not Intent.KILL or everybodys(error):
                raise
            log.error("run %s was killed, and its directory cannot be read: %s", run.id, error)

    def ended(
        self, live: LiveRun, record: JobRecord | None, *, requeued: bool = False, by: float | None = None
    ) -> events.AttemptEnded:
        """What is left of an attempt that is over. Raises OSError, but not of a run that was killed: its end needs no report.
        ``by``: when the next attempt started, where it has."""
        run, run_dir = live.run, self._home.run(live.run.id)
        report, stop_reason, matched = None, "", []
        passed_over = (RunDirError, OSError) if run.intent is Intent.KILL else (RunDirError,)
        if run.attempt >= 0:
            with contextlib.suppress(*passed_over):
                report = run_dir.attempt(run.attempt).end_report()
            with contextlib.suppress(*passed_over):
                if (request := run_dir.attempt(run.attempt).stop_request()) is not None:
                    stop_reason = request.reason
            with contextlib.suppress(*passed_over):
                matched = run_dir.attempt(run.attempt).log_matches(max(1, len(run.nodes)))
        return events.AttemptEnded(
            run.id,
            run.attempt,
            report,
            record,
            min(time.time(), by or math.inf),
            requeued=requeued,
            log_tail="" if report or requeued else _why_no_report(run_dir),
            stop_reason=stop_reason,
            rest=self._cadence.pace.rest,
            down=self._down(run, record) if requeued and not (record is not None and record.preempted) else (),
            missing=live.missing_reports[1] if live.missing_reports[0] == run.attempt else 0,
            matched=matched,
        )

    def _down(self, run: Run, record: JobRecord | None) -> tuple[str, ...]:
        """Nodes of the run that are down: a reason why the scheduler queued its job again, which it does not tell itself.

        What was said of nodes before the job was seen to be queued again may be of a time when none was down.
        """
        try:
            down = self._view.nodes_down(time.monotonic() if record is None else self._cadence.listed_at)
        except SchedulerUnavailable:
            return ()
        return tuple(name for name in run.nodes if name in down)


def _held_by(home: Home, live: LiveRun) -> str | None:
    """The job that has claimed the run. Raises OSError, and RunDirError before its first attempt: later the claim says
    nothing that ``started.json`` has not said, and one that is damaged costs no report."""
    try:
        return claimed_by(home.run(live.run.id))
    except RunDirError as error:
        if live.run.attempt < 0:
            raise
        if live.in_trouble(str(error)):
            message = f"{error}; attempt {live.run.attempt} says itself that job {live.run.scheduler_job_id} runs it"
            log.error("run %s: %s", live.run.id, message)
            tell(home, live.run, message)
        return None


def _why_no_report(run_dir: RunDir) -> str:
    """A full file system, or the last lines of Slurm's log; empty when neither says anything."""
    try:
        room = os.statvfs(run_dir.path)
        if room.f_bavail == 0 or (room.f_files and room.f_favail == 0):
            return f"{NO_SPACE}{run_dir.path}"
    except OSError:
        pass
    return _tail(run_dir.log)


def _tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log as one line; empty when there is none."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            text = file.read(_LOG_TAIL).decode(errors="replace")
    except OSError:
        return ""
    return " / ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())
