"""Brings the world to what the rows want, and tells the engine what the world did.

One thread goes round: submit wanted runs, pass on stops and kills, read run directories, and now and then ask the scheduler for
all jobs at once. Everything it does may be done twice: a master that was killed at any point does the same again from its rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from dethpc.domain.facts import Run
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.engine.runs import next_deadline, overdue
from dethpc.errors import LeaseHeld, ShuttingDown, StoreError, StoreUnavailable
from dethpc.master.durable.lease import RENEW
from dethpc.master.parts import Parts
from dethpc.master.submitting.hand_over import HandOver, MakeJob
from dethpc.master.submitting.job_reuse import ReusableJobs, pools_of_short_jobs
from dethpc.master.submitting.submit import OnRefused, Submitter
from dethpc.master.watching.job_identity import JobIdentity
from dethpc.master.watching.journals import Journals
from dethpc.master.watching.poll import Poller
from dethpc.master.watching.read import Reader
from dethpc.master.watching.stop import Stopper
from dethpc.master.watching.trouble import ReportWarnings, Trouble
from dethpc.master.watching.watch import Watch
from dethpc.master.watching.worker_reports import WorkerReports
from dethpc.rundir.filesystem import unwritable
from dethpc.rundir.home import Home

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0
"""Seconds between two cycles when one after the other fails."""

LAST_CYCLE = 1.0
"""Seconds that the cycle in progress has when the master is stopped."""


class Jobs(Protocol):
    """Where the jobs of runs come from."""

    def prepare(self, runs: Sequence[Run]) -> MakeJob:
        """What writes the directory of each of these runs and returns its job. Raises StoreError."""

    def missing(self, run: Run) -> str:
        """What the run waits for before it can be prepared, in words; "" for nothing. Raises SubmitRejected where that will
        never be there, OSError."""


class Reconciler:
    """``on_lease_lost`` is called when another master has taken over, after which this one does nothing more."""

    def __init__(
        self,
        parts: Parts,
        watch: Watch,
        jobs: Jobs,
        worker_reports: WorkerReports,
        on_refused: OnRefused,
        on_lease_lost: Callable[[], None],
    ) -> None:
        self._home = parts.home
        self._ledger = parts.ledger
        self._lease = parts.lease
        self._runs = watch.runs
        self._cadence = watch.cadence
        self._on_lease_lost = on_lease_lost
        self._reusable = ReusableJobs(parts.home, pools_of_short_jobs(parts.site))
        self._report_warnings = ReportWarnings(parts.ledger, parts.home)
        self._trouble = Trouble(parts, watch)
        identity = JobIdentity(parts.home, parts.cluster_id, watch.arrays)
        hand_over = HandOver(parts, watch, jobs.prepare, self._reusable, self._trouble)
        self._submitter = Submitter(parts, watch, hand_over, self._trouble, jobs.missing, on_refused)
        self._stopper = Stopper(parts, watch, identity)
        journals = Journals(parts, watch.runs)
        self._reader = Reader(parts, watch, journals, self._reusable, worker_reports)
        self._poller = Poller(parts, watch, self._reader, journals, identity, self._trouble)
        self._stopping = False
        self.unwritable = ""  # why nothing can be written at present, in words. Any thread may read it
        self.heartbeat = watch.runs.heartbeat
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End after this cycle. One that waits for the scheduler is left behind: the next master finds out what came of it."""
        self._stopping = True
        self._runs.changed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=LAST_CYCLE)

    def _run(self) -> None:
        failures = 0
        while not self._stopping:
            self.heartbeat.beat()
            try:
                self.cycle()
                failures, self.unwritable = 0, unwritable(self._home.root)
            except LeaseHeld as error:
                log.error("%s; this master stops", error)
                self._on_lease_lost()
                return
            except StoreUnavailable:
                failures += 1  # the store tells it
            except Exception as error:
                failures += 1
                self.unwritable = _why_unwritable(error, self._home)
                log.exception("a cycle failed; the next one tries again")
            self.heartbeat.rest()
            self._runs.changed.wait(self._pause(failures))
            self._runs.changed.clear()

    def _pause(self, failures: int) -> float:
        """Seconds until the next cycle, unless something changes earlier."""
        pause = self._cadence.pace.files if len(self._runs) else RENEW
        deadline = next_deadline(self._ledger.state)
        if deadline is not None:
            pause = min(pause, max(0.05, deadline - time.time()))
        return max(pause, min(LONGEST_PAUSE, failures * 2.0))

    def cycle(self) -> None:
        """One round. Raises LeaseHeld when another master has taken over, and what failed first, once all else is done."""
        self._lease.renew()
        self._runs.take_in()
        failed: Exception | None = None
        for part in (
            self._submitter.submit,
            self._look_at_runs,
            self._report_warnings.write,
            self._stopper.cancel_killed,
            self._reusable.release,
            self._poller.poll_if_due,
            self._poller.take_over,
            self._tick,
        ):
            try:
                part()
            except (LeaseHeld, ShuttingDown):
                raise
            except Exception as error:
                if failed is not None:
                    log.error("one more part of the cycle failed", exc_info=error)
                failed = failed or error
        if failed is not None:
            raise failed

    def _look_at_runs(self) -> None:
        for live in self._runs.all():
            if live.run.state is not RunState.SUBMITTING:
                self._trouble.contain(live, "telling it to end", self._stopper.pass_on_intent, live)
                self._trouble.contain(live, "reading its directory", self._reader.look, live)
        self._runs.take_in()

    def _tick(self) -> None:
        if overdue(self._ledger.state, time.time()):
            self._ledger.do(events.Tick(time.time()))


def _why_unwritable(error: Exception, home: Home) -> str:
    """What a failed cycle says of the disk or the database, in a line; "" where it failed otherwise. A write to an open file does
    not say which it is: it is in the home."""
    if isinstance(error, StoreError):
        return unwritable(home.root) or str(error).partition("\n")[0]
    if isinstance(error, OSError):
        return f"{error.filename or home.root}: {error.strerror}" if error.strerror else str(error)
    return ""
