"""Journals of live runs: what attempts have reported since the last look, and what is left of those that are over."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dethpc.domain.facts import Run
from dethpc.domain.reports import Report, ReportKind, fault
from dethpc.engine import events
from dethpc.errors import NotFound
from dethpc.master.parts import Parts
from dethpc.master.watching.foreign_checkpoints import told_others
from dethpc.master.watching.live_runs import LiveRun, LiveRuns
from dethpc.master.watching.trouble import tell
from dethpc.rundir.journal import A_LOOK, RemainsReader
from dethpc.rundir.journal import read as read_live
from dethpc.state import queries
from dethpc.state.store import SqlStore

log = logging.getLogger(__name__)


class Journals:
    """Tells the engine what they say. For the reconciler's thread."""

    def __init__(self, parts: Parts, runs: LiveRuns) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._runs = runs

    def read(self, live: LiveRun) -> bool:
        """Apply the new events of the run's live attempt. Returns whether there were any. Raises OSError."""
        run = live.run
        attempt = self._ledger.state.attempt(run.id, run.attempt)
        path = self._home.run(run.id).attempt(run.attempt).journal
        if attempt is None or size_of(path) <= attempt.applied_offset:
            return False
        reports, offset = read_live(path, attempt.applied_offset, attempt.applied_seq, A_LOOK)
        if offset - attempt.applied_offset >= A_LOOK:
            self._go_on(live)
        self._tell_faults(run, reports)
        self._mark_source(run, reports)
        others = told_others(self._ledger, self._store, self._home, run, reports)
        self._runs.do(events.Reported(run.id, run.attempt, reports, time.time(), offset, others=others))
        return bool(reports)

    def _go_on(self, live: LiveRun) -> None:
        """Others first, then the rest."""
        live.poll_interval.go_on()
        self._runs.changed.set()

    def read_remains(self, live: LiveRun, until: int | None = None) -> bool:
        """Apply what is left of the journal of an attempt that is over; nothing after ``until``. Raises OSError.

        Returns whether that was all. A long journal takes several calls, and other runs have their turn between two.
        """
        run = live.run
        attempt = self._ledger.state.attempt(run.id, run.attempt)
        path = self._home.run(run.id).attempt(run.attempt).journal
        if attempt is None or size_of(path) <= attempt.applied_offset:
            return True
        if live.remains is None or live.remains_of != run.attempt:
            live.remains_of = run.attempt
            live.remains = RemainsReader(path, attempt.applied_offset, attempt.applied_seq)
        remains, live.remains = live.remains, None  # what could not be committed is read again
        remains.last = max(remains.last, attempt.applied_seq)
        batch = remains.read(A_LOOK)
        reports = [report for report in batch if until is None or report.seq <= until]
        cut = len(reports) < len(batch)
        self._tell_faults(run, reports)
        self._mark_source(run, reports)
        end = None if cut else remains.offset
        if reports or remains.whole:
            others = told_others(self._ledger, self._store, self._home, run, reports)
            self._runs.do(events.Reported(run.id, run.attempt, reports, time.time(), end, remains=True, others=others))
        live.remains = remains
        if not cut and not remains.whole:
            self._go_on(live)
            return False
        self._tell_missing(live, path, remains.missing)
        return True

    def _tell_missing(self, live: LiveRun, path: Path, missing: int) -> None:
        run = live.run
        if missing and live.missing_reports != (run.attempt, missing):
            live.missing_reports = run.attempt, missing
            message = f"{missing} reports of attempt {run.attempt} are damaged in {path} and cannot be counted"
            log.error("run %s: %s", run.id, message)
            tell(self._home, run, f"{message}; those after them count")

    def _tell_faults(self, run: Run, reports: Sequence[Report]) -> None:
        for report in reports:
            if why := fault(report):
                tell(self._home, run, f"report {report.seq} ({report.kind}) counts for nothing: {why}")

    def _mark_source(self, run: Run, reports: Sequence[Report]) -> None:
        """Before they are applied: a master that is killed in between marks it again."""
        trial = self._ledger.state.trial_of(run)
        for report in reports:
            named = report.kind == ReportKind.CHECKPOINT_DAMAGED and not fault(report) and report.data["uuid"]
            if trial is None or not named or named != trial.source_checkpoint:
                continue
            event = partial(source_damaged, self._store, named, report.data["why"][:500], time.time())
            with contextlib.suppress(NotFound):  # no trial here made it
                self._ledger.do_after(event)


def source_damaged(store: SqlStore, uuid: str, why: str, at: float) -> events.SourceDamaged:
    """A checkpoint failed its checks where a trial was to begin at it. Raises NotFound."""
    with store.read() as connection:
        checkpoint = queries.checkpoint(connection, uuid)
        others = queries.checkpoints_of_trial(connection, checkpoint.trial_id)
    return events.SourceDamaged(checkpoint, why, at, others)


def size_of(path: Path) -> int:
    """0: it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
