"""Metrics of trials that do not come from their chief: what other workers wrote, and what is posted to the master.

All of it goes to one journal of the master's in the attempt's directory (``AttemptDir.taken``) before the engine hears of it, so
that the database can be made again. A worker of another rank writes a journal of its own, which is read from here: that needs no
master, and its numbers say what was taken before. The chief's own journal has one writer, and stays as it is.
"""

from __future__ import annotations

import logging
import os
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
from dethpc.errors import Refused, RunOver
from dethpc.master.durable.ledger import Ledger
from dethpc.master.runs.trouble import tell
from dethpc.rundir.home import Home
from dethpc.rundir.journal import A_LOOK, JournalWriter, NotWritten, RemainsReader, read, read_remains
from dethpc.state import queries
from dethpc.state.store import SqlStore

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Taken:
    """The master's journal of an attempt. Only the ledger's thread writes to it."""

    journal: JournalWriter
    behind: list[Report]  # in it, and not in the database: a master that was killed wrote them
    numbers: dict[int, int]  # rank -> number of its last report that was taken
    offsets: dict[int, int] = field(default_factory=dict)  # rank -> bytes of its journal that were taken


class Beside:
    """``post`` is for any thread, ``take_in`` for the reconciler's."""

    def __init__(self, ledger: Ledger, home: Home, store: SqlStore) -> None:
        self._ledger, self._home, self._store = ledger, home, store
        self._open: dict[tuple[str, int], _Taken] = {}

    def post(self, trial_id: int, data: dict[str, Any], run_number: int | None, sender: str | None) -> None:
        """Metrics that somebody posts, for the trial's last attempt, which may be over. ``run_number``, where it is given, is the
        run that they are of; ``sender`` is the run that posts them itself, and has to live. Where ``steps_completed`` is None they
        are of the trial's last steps. Raises NotFound, Refused, RunOver."""
        self._ledger.do_after(lambda: self._posted(trial_id, data, run_number, sender))

    def take_in(self, run: Run, *, over: bool = False) -> None:
        """What the workers of the run's attempt wrote since the last time. ``over``: they write no more, and a damaged line costs
        itself alone. Raises OSError."""
        folder = self._home.run(run.id).attempt(run.attempt)
        attempt = self._ledger.state.attempt(run.id, run.attempt)
        if attempt is None or not folder.beside.is_dir():
            return
        trial = self._ledger.state.trial_of(run)
        if trial is None:
            return
        if (run.id, run.attempt) not in self._open:
            self._ledger.do_after(partial(self._taking, trial.id, attempt, 0, []))
        taken = self._open[run.id, run.attempt]
        for rank in folder.ranks():
            path, offset = folder.journal_of(rank), taken.offsets.get(rank, 0)
            end = _size(path)
            while offset < end:
                found, behind = _after(path, offset, taken.numbers.get(rank, 0), over=over)
                sound = [report for report in found if not self._unsound(run, rank, report)]
                if sound:
                    self._ledger.do_after(partial(self._taking, trial.id, attempt, rank, sound))
                offset = taken.offsets[rank] = behind
                if not over:
                    break  # others first, then the rest

    def _unsound(self, run: Run, rank: int, report: Report) -> bool:
        why = fault(report) if report.kind == ReportKind.METRICS else f"it is no report of metrics but {report.kind!r}"
        if why:
            tell(self._home, run, f"report {report.seq} of rank {rank} counts for nothing: {why}")
        return bool(why)

    # --- on the ledger's thread: nothing changes between what is asked here and what is decided

    def _posted(self, trial_id: int, data: dict[str, Any], run_number: int | None, sender: str | None) -> events.Event:
        with self._store.read() as connection:
            trial = queries.trial(connection, trial_id)
            attempt = queries.last_attempt(connection, trial_id)
            run = None if attempt is None else queries.run(connection, attempt.run_id)
        if sender is not None and (attempt is None or attempt.run_id != sender or attempt.state is AttemptState.ENDED):
            raise RunOver(f"run {sender} has ended for the master: its reports do not count any more", 410)
        if attempt is None or run is None:
            raise Refused(f"trial {trial_id} has not begun: there is nothing yet that metrics could be of")
        if run_number and run_number != run.number:
            raise Refused(f"trial {trial_id} was started again (run {run.number}): run {run_number} is over")
        if data["steps_completed"] is None:
            data = {**data, "steps_completed": trial.steps_completed}
        report = Report(1, time.time(), ReportKind.METRICS, data)
        if why := fault(report):
            raise Refused(f"this cannot be reported: {why}")
        event = self._appended(trial_id, attempt, [(report.at, data)])
        if attempt.state is AttemptState.ENDED:
            self._close_ended()
        return event

    def _taking(self, trial_id: int, attempt: Attempt, rank: int, reports: Sequence[Report]) -> events.Event:
        found = [(report.at, {**report.data, "rank": rank, "number": report.seq}) for report in reports]
        return self._appended(trial_id, attempt, found)

    def _appended(self, trial_id: int, attempt: Attempt, found: Sequence[tuple[float, dict[str, Any]]]) -> events.Event:
        taken = self._journal(attempt)
        reports, taken.behind = taken.behind, []
        for at, data in found:
            try:
                report = taken.journal.append(ReportKind.METRICS, data, at=at)
            except NotWritten as refused:
                log.warning("the metrics of run %s cannot be written: %s", attempt.run_id, refused)
                report = refused.report
            if "rank" in data:
                taken.numbers[data["rank"]] = data["number"]
            reports.append(report)
        return events.Posted(trial_id, attempt, [report._replace(seq=-report.seq) for report in reports])

    def _journal(self, attempt: Attempt) -> _Taken:
        key = attempt.run_id, attempt.number
        if key not in self._open:
            self._close_ended()
            folder = self._home.run(attempt.run_id).attempt(attempt.number)
            folder.beside.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = read_remains(folder.taken).reports
            with self._store.read() as connection:
                known = queries.posted(connection, attempt.run_id, attempt.number)
            numbers = {report.data["rank"]: report.data["number"] for report in written if "rank" in report.data}
            behind = [report for report in written if report.seq > known]
            self._open[key] = _Taken(JournalWriter(folder.taken), behind, numbers)
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
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
