"""Metrics of trials from others than the chief worker: the journals of other workers, and what is posted over HTTP.

All of it goes to the master's journal in the attempt's directory (``AttemptDir.master_journal``) before the engine hears of it, so
that the database can be made again. A worker of another rank writes a journal of its own, which is read from here: that needs no
master, and its numbers say what was taken before. The chief's own journal has one writer, and stays as it is.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dethpc.domain.facts import Attempt, Run
from dethpc.domain.reports import Report, ReportKind, fault
from dethpc.domain.states import AttemptState
from dethpc.engine import events
from dethpc.errors import Refused, RunOver, StoreError, UnfitRow
from dethpc.master.files import late_writes
from dethpc.master.parts import Parts
from dethpc.master.watching.trouble import tell, write
from dethpc.rundir.journal import A_LOOK, JournalWriter, NotWritten, RemainsReader, read
from dethpc.state import queries

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Journal:
    """The master's journal of an attempt. Only the ledger's thread writes to it.

    ``unsure`` are reports that are in it and may not be in the database: a master that was killed wrote them, or their commit
    failed. They go with the next ones, so what the database has is always a beginning of the journal.
    """

    journal: JournalWriter
    unsure: list[Report]
    numbers: dict[int, int]  # rank -> number of its last report that was taken
    offsets: dict[int, int] = field(default_factory=dict)  # rank -> bytes of its journal that were taken
    failed: bool = False  # the last commit did
    unfit: bool = False  # and would again: the database has no place for what was reported

    def missed(self, error: Exception) -> None:
        self.failed, self.unfit = True, isinstance(error, UnfitRow)


class WorkerReports:
    """``post`` is for any thread, ``take_in`` for the reconciler's."""

    def __init__(self, parts: Parts) -> None:
        self._ledger = parts.ledger
        self._home = parts.home
        self._store = parts.store
        self._open: dict[tuple[str, int], _Journal] = {}

    def post(self, trial_id: int, data: dict[str, Any], run_number: int | None, sender: str | None) -> None:
        """Metrics that somebody posts, for the trial's last attempt, which may be over. ``run_number``, where it is given, is the
        run that they are of; ``sender`` is the run that posts them itself, and has to live. Where ``steps_completed`` is None they
        are of the trial's last steps. Raises NotFound, Refused, RunOver."""
        journals: list[_Journal] = []
        try:
            self._ledger.do_after(lambda: self._posted(trial_id, data, run_number, sender, journals))
        except StoreError as error:
            for journal in journals:
                journal.missed(error)
            raise

    def take_in(self, run: Run, *, over: bool = False) -> bool:
        """What the workers of the run's attempt wrote since the last time; whether there was any. ``over``: they write no more, and
        a damaged line costs itself alone. Raises OSError."""
        folder = self._home.run(run.id).attempt(run.attempt)
        attempt = self._ledger.state.attempt(run.id, run.attempt)
        if attempt is None or not folder.worker_journals.is_dir():
            return False
        trial = self._ledger.state.trial_of(run)
        if trial is None:
            return False
        journal = self._open.get((run.id, run.attempt))
        if journal is None or journal.failed:
            self._ledger.do_after(partial(self._taking, trial.id, attempt, 0, []))
            journal = self._open[run.id, run.attempt]
            journal.failed = False
        wrote = False
        for rank in folder.ranks():
            path, offset = folder.journal_of(rank), journal.offsets.get(rank, 0)
            end = _size(path)
            while offset < end:
                reports, behind = _after(path, offset, journal.numbers.get(rank, 0), over=over)
                sound = [report for report in reports if not self._unsound(run, rank, report)]
                if sound:
                    try:
                        self._ledger.do_after(partial(self._taking, trial.id, attempt, rank, sound))
                    except StoreError as error:
                        journal.missed(error)
                        raise
                wrote = wrote or bool(reports)
                offset = journal.offsets[rank] = behind
                if not over:
                    break  # others first, then the rest
        return wrote

    def _unsound(self, run: Run, rank: int, report: Report) -> bool:
        why = fault(report) if report.kind == ReportKind.METRICS else f"it is no report of metrics but {report.kind!r}"
        if why:
            tell(self._home, run, f"report {report.seq} of rank {rank} counts for nothing: {why}")
        return bool(why)

    # --- on the ledger's thread: nothing changes between what is asked here and what is decided

    def _posted(
        self, trial_id: int, data: dict[str, Any], run_number: int | None, sender: str | None, journals: list[_Journal]
    ) -> events.Event:
        """``journals`` gets the journal once the report is in it: an event is made again where another of its batch failed.

        The attempt may be over, and its trial about to be folded: until the report is written, it is not."""
        with self._home.archives.lock:
            return self._written(trial_id, data, run_number, sender, journals)

    def _written(
        self, trial_id: int, data: dict[str, Any], run_number: int | None, sender: str | None, journals: list[_Journal]
    ) -> events.Event:
        with self._store.read() as connection:
            trial = queries.trial(connection, trial_id)
            attempt = queries.last_attempt(connection, trial_id)
            run = None if attempt is None else queries.run(connection, attempt.run_id)
            whose = queries.experiment(connection, trial.experiment_id)
        if sender is not None and (attempt is None or attempt.run_id != sender or attempt.state is AttemptState.ENDED):
            raise RunOver(f"run {sender} has ended for the master: its reports do not count any more", 410)
        if attempt is None or run is None:
            raise Refused(f"trial {trial_id} has not begun: there is nothing yet that metrics could be of")
        if not whose.state.keeps_files:
            raise Refused(f"experiment {whose.id} is {whose.state.value}: nothing more is kept of trial {trial_id}")
        if run_number and run_number != run.number:
            raise Refused(f"trial {trial_id} was started again (run {run.number}): run {run_number} is over")
        if data["steps_completed"] is None:
            data = {**data, "steps_completed": trial.steps_completed}
        report = Report(1, time.time(), ReportKind.METRICS, data)
        if why := fault(report):
            raise Refused(f"this cannot be reported: {why}")
        event = self._appended(trial_id, attempt, [] if journals else [(report.at, data)])
        journals[:] = [self._journal(attempt)]
        if attempt.state is AttemptState.ENDED:
            self._close_ended()
        return event

    def _taking(self, trial_id: int, attempt: Attempt, rank: int, reports: Sequence[Report]) -> events.Event:
        last = self._journal(attempt).numbers.get(rank, 0)
        new = [report for report in reports if report.seq > last]
        posts = [(report.at, {**report.data, "rank": rank, "number": report.seq}) for report in new]
        return self._appended(trial_id, attempt, posts)

    def _appended(self, trial_id: int, attempt: Attempt, posts: Sequence[tuple[float, dict[str, Any]]]) -> events.Event:
        journal = self._journal(attempt)
        with self._store.read() as connection:
            last_committed = queries.posted(connection, attempt.run_id, attempt.number)
        unsure = [] if journal.unfit else [report for report in journal.unsure if report.seq > last_committed]
        for at, data in posts:
            try:
                report = journal.journal.append(ReportKind.METRICS, data, at=at)
            except NotWritten as refused:
                log.warning("the metrics of run %s cannot be written: %s", attempt.run_id, refused)
                report = refused.report
            except (TypeError, ValueError) as error:  # no room is left for what is noted beside it
                if "rank" not in data:
                    raise Refused(f"this cannot be reported: {error}") from None
                message = f"report {data['number']} of rank {data['rank']} counts for nothing: {error}"
                write(self._home, attempt.run_id, attempt.number, message, "ERROR")
                journal.numbers[data["rank"]] = data["number"]
                continue
            if "rank" in data:
                journal.numbers[data["rank"]] = data["number"]
            unsure.append(report)
        journal.unsure, journal.unfit = unsure, False
        return events.Posted(trial_id, attempt, [report._replace(seq=-report.seq) for report in unsure])

    def _journal(self, attempt: Attempt) -> _Journal:
        key = attempt.run_id, attempt.number
        if key not in self._open:
            self._close_ended()
            with self._store.read() as connection:
                last_committed = queries.posted(connection, attempt.run_id, attempt.number)
            unsure: list[Report] = []
            numbers: dict[int, int] = {}
            with late_writes.place(
                self._home, attempt.run_id, lambda run: run.attempt(attempt.number).master_journal
            ) as path:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                written = RemainsReader(path)
                while not written.whole:
                    for report in written.read(A_LOOK):
                        if "rank" in report.data:
                            numbers[report.data["rank"]] = report.data["number"]
                        if report.seq > last_committed:
                            unsure.append(report)
                self._open[key] = _Journal(JournalWriter(path), unsure, numbers)
        return self._open[key]

    def _close_ended(self) -> None:
        for run_id, number in list(self._open):
            attempt = self._ledger.state.attempt(run_id, number)
            if attempt is None or attempt.state is AttemptState.ENDED:
                self._open.pop((run_id, number)).journal.close()


def _after(path: Path, offset: int, number: int, *, over: bool) -> tuple[list[Report], int]:
    """The reports of about the next megabyte, and the offset behind them."""
    if not over:
        return read(path, offset, number, A_LOOK)
    reader = RemainsReader(path, offset, number)
    reports: list[Report] = []
    while not reader.whole and not reports:
        reports = reader.read(A_LOOK)
    return reports, _size(path) if reader.whole else reader.offset


def _size(path: Path) -> int:
    """0: there is no regular file."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
