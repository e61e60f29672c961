"""Journals and logs that the master writes for runs that are trained elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from dethpc.domain.reports import Report, ReportKind
from dethpc.master.files import late_writes
from dethpc.master.rounds import Rounds
from dethpc.rundir import logline
from dethpc.rundir.files import open_to_append
from dethpc.rundir.home import Home
from dethpc.rundir.journal import SYNC_SECONDS, JournalWriter, NotWritten

log = logging.getLogger(__name__)

_PIECE = 1 << 16  # characters of one line of a log, as on nodes


@dataclass(slots=True)
class Journal:
    """``lock``: the engine hears of reports in the order in which they are written. ``end`` is done when the engine has heard that
    there are no more; None: there may be."""

    writer: JournalWriter
    lock: threading.Lock = field(default_factory=threading.Lock)
    end: Future[Any] | None = None

    def append(self, run_id: str, kind: ReportKind, data: dict[str, Any]) -> Report:
        """The report with its number, also where the disk refuses it: what is committed is in the database."""
        try:
            return self.writer.append(kind, data)
        except NotWritten as refused:
            log.warning("the journal of run %s cannot be written: %s", run_id, refused)
            return refused.report


def write_log(home: Home, run_id: str, rank: int | None, lines: Iterable[str]) -> None:
    """Output of a run that is trained elsewhere, which may be over. Raises OSError."""
    written = []
    for line in lines:
        text = line.rstrip("\n")
        for begin in range(0, max(1, len(text)), _PIECE):
            piece = text[begin : begin + _PIECE]
            written.append(logline.format(logline.LogLine(time.time(), "INFO", rank, "stdout", piece)))
    with late_writes.place(home, run_id, lambda run: run.attempt(0).log(0)) as path:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_to_append(path) as file:
            file.writelines(line.encode() for line in written)


class Journals:
    """Every method may be called from any thread. What was written is brought to disk once a second, and no report waits for that:
    what is committed is on disk in the database already."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._open: dict[str, Journal] = {}
        self._unflushed: set[str] = set()  # runs whose journals may hold reports that are not on disk yet
        self._rounds = Rounds(
            "unmanaged-journals", self._flush, None, trouble="journals of unmanaged runs do not reach the disk"
        )

    def start(self) -> None:
        self._rounds.start()

    def stop(self) -> None:
        self._rounds.stop()
        self.close_but(())

    def of(self, run_id: str) -> Journal:
        """The journal of a run, to write to now. Raises OSError."""
        with self._lock:
            journal = self._open.get(run_id)
            if journal is None:
                attempt = self._home.run(run_id).attempt(0)
                attempt.make()
                journal = self._open[run_id] = Journal(JournalWriter(attempt.journal, lazy=True))
            if not self._unflushed:
                self._rounds.wake()
            self._unflushed.add(run_id)
            return journal

    def close_but(self, live: Container[str]) -> None:
        """Close the journals of runs that are not among ``live``."""
        with self._lock:
            for run_id in [id for id in self._open if id not in live]:
                self._open.pop(run_id).writer.close()

    def _flush(self) -> None:
        """A while after the first report that is not on disk. Raises ShuttingDown."""
        self._rounds.rest(SYNC_SECONDS)
        with self._lock:
            written = {id: journal for id in self._unflushed if (journal := self._open.get(id)) is not None}
            self._unflushed.clear()
        for run_id, journal in written.items():
            try:
                journal.writer.flush()
            except OSError as error:
                log.warning("the journal of run %s does not reach the disk: %s", run_id, error)
