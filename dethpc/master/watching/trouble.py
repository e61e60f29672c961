"""One run's trouble is its own.

Whatever goes wrong with one run (a damaged file, a report that nobody expected, a row that the database does not take) is said in
its trial's log, tried again for a while, and then ends that attempt. The other runs do not notice.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

from dethpc.domain.attempts.end_report import EndReport, plain_text
from dethpc.domain.facts import Row, Run, Trial
from dethpc.domain.ids import run_id, task_id
from dethpc.engine import events
from dethpc.errors import LeaseHeld, SchedulerUnavailable, ShuttingDown, StoreError, UnfitRow
from dethpc.master.durable.ledger import Ledger
from dethpc.master.files import late_writes
from dethpc.master.parts import Parts
from dethpc.master.submitting.image_pulls import ORDER
from dethpc.master.watching.live_runs import Leftover, LiveRun
from dethpc.master.watching.watch import Watch
from dethpc.rundir import logline
from dethpc.rundir.files import open_to_append, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir

log = logging.getLogger(__name__)

TRIES = 10
"""How often the same is tried with a run before its attempt is ended."""

TRIES_OF_A_DISK = 60
"""The same where a file cannot be read or written at all: file servers come back, and training goes on meanwhile."""

LONGEST_REST = 60.0
"""Seconds between two tries, at most."""


def everybodys(error: Exception) -> bool:
    """Whether the error is no run's own: the master ends, or what it needs does not answer."""
    if isinstance(error, (LeaseHeld, ShuttingDown, SchedulerUnavailable)):
        return True
    return isinstance(error, StoreError) and not isinstance(error, UnfitRow)


def tell(home: Home, run: Run, message: str) -> None:
    """Write a line into the trial's log, where the run has a directory."""
    write(home, run.id, run.attempt, message, "ERROR")


def write(home: Home, run_id: str, attempt: int, message: str, level: str, at: float | None = None) -> None:
    """Write a line of this level into the trial's log, beside what the attempt wrote. ``at``: its time; None: now."""
    line = logline.LogLine(
        time.time() if at is None else at, level, None, "stderr", plain_text(message).replace("\n", " ")
    )
    try:
        with late_writes.place(home, run_id, lambda run: run.waiting(max(0, attempt))) as path:
            with open_to_append(path) as file:
                file.write(logline.format(line).encode())
    except OSError as error:
        log.warning("run %s: its trial's log could not be written: %s", run_id, error)


def close(run_dir: RunDir) -> None:
    """The scheduler may have queued the job again just then, or somebody may do so later: it shall not train once more. A later
    master, too, knows by this that nobody wants the job. What it was to pull goes, for there may be a password in it that
    a job which was killed, or never began, has left."""
    with contextlib.suppress(OSError):
        (run_dir.path / ORDER).unlink(missing_ok=True)
        if not run_dir.closed.exists():
            write_json(run_dir.closed, {"intent": "end", "reason": "it has ended", "at": time.time()}, durable=False)


class Trouble:
    def __init__(self, parts: Parts, watch: Watch) -> None:
        self._ledger = parts.ledger
        self._home = parts.home
        self._runs = watch.runs
        self._cadence = watch.cadence

    def contain(self, live: LiveRun, doing: str, call: Callable[..., object], *arguments: Any) -> None:
        """``call(*arguments)``, unless it failed for this run a short while ago. ``doing`` says what it is about, for people.

        Raises what concerns everybody: LeaseHeld, ShuttingDown, SchedulerUnavailable, StoreError.
        """
        if time.monotonic() < live.rests_until.get(doing, 0.0):
            return
        try:
            call(*arguments)
        except Exception as error:
            if everybodys(error):
                raise
            self._met(live, doing, error)
        else:
            live.tries.pop(doing, None)
            live.rests_until.pop(doing, None)

    def _met(self, live: LiveRun, doing: str, error: Exception) -> None:
        live.tries[doing] = tries = live.tries.get(doing, 0) + 1
        most = TRIES_OF_A_DISK if isinstance(error, OSError) else TRIES
        rest = min(LONGEST_REST, self._cadence.pace.rest * 2 ** min(tries - 1, 10))
        live.rests_until[doing] = time.monotonic() + rest
        message = f"{doing} failed: {_error_text(error)}"
        if tries < most:
            if live.in_trouble(message):
                log.error("run %s: %s", live.run.id, message, exc_info=error)
                self.tell(live, f"{message}; the master tries again, {most} times in all, and then ends this run")
            return
        self._end(live, f"{message} ({tries} times)")

    def _end(self, live: LiveRun, why: str) -> None:
        """End the run's attempt; its trial goes on as after any failure. Raises as ``contain``."""
        run = live.run
        self.tell(live, f"{why}; this run ends here")
        log.error("run %s is ended: %s", run.id, why)
        if run.scheduler_job_id is not None:
            self._runs.leftover_jobs[run.scheduler_job_id] = Leftover(run.id, lost=True)
        close(self._home.run(run.id))
        # Before its first attempt it never got as far as user code.
        report = EndReport(phase="claim" if run.attempt < 0 else "", message=why)
        rest = self._cadence.pace.rest
        try:
            self._runs.do(events.AttemptEnded(run.id, run.attempt, report, None, time.time(), rest=rest))
        except Exception as error:
            if everybodys(error):
                raise
            log.exception("run %s could not be ended; the master tries again", run.id)

    def tell(self, live: LiveRun, message: str) -> None:
        tell(self._home, live.run, message)


def _error_text(error: Exception) -> str:
    """An error of ours says all there is to say; of another the kind is part of it."""
    complete = isinstance(error, OSError) or type(error).__module__.startswith("dethpc.")
    return str(error) if complete and str(error) else f"{type(error).__name__}: {error}"


class ReportWarnings:
    """Writes warnings about malformed reports into the trial's log, where its user looks first.

    ``write`` is for the reconciler's thread. What an earlier master was told of stands in the log already.
    """

    def __init__(self, ledger: Ledger, home: Home) -> None:
        self._ledger, self._home = ledger, home
        self._told = {
            trial.id: trial.warning
            for experiment in ledger.state.experiments.values()
            for trial in experiment.trials
            if trial.warning
        }
        self._amiss: queue.SimpleQueue[tuple[str, int, str]] = queue.SimpleQueue()  # run, attempt, words
        ledger.listen(self._committed)

    def _committed(self, rows: Sequence[Row]) -> None:
        """On the ledger's thread: this sees every report."""
        for row in rows:
            if isinstance(row, Trial) and row.warning and self._told.get(row.id) != row.warning:
                self._told[row.id] = row.warning
                run = run_id(task_id(row.experiment_id, row.id), row.runs)
                live = self._ledger.state.runs.get(run)
                self._amiss.put((run, live.attempt if live is not None else 0, row.warning))

    def write(self) -> None:
        """Write what was committed since into the trials' logs."""
        while not self._amiss.empty():
            run, attempt, warning = self._amiss.get()
            write(self._home, run, attempt, warning, "WARNING")
