"""Reports are written to the attempt's journal, which is the source of truth, and then sent to the master.

A report is done when the journal has it. A thread sends the same lines to the master; failures there are retried and never disturb
the training. If the disk refuses a line, the thread has the only copy, and keeps it until the master has acknowledged it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, NamedTuple, Optional, Protocol

from dethpc.domain.reports import Report, ReportKind
from dethpc.errors import DethpcError, RunOver
from dethpc.rundir.journal import SYNC_SECONDS, JournalWriter, NotWritten

if TYPE_CHECKING:
    from dethpc.client.session import Session
    from dethpc.domain.ids import AttemptId

logger = logging.getLogger("dethpc.core")

_RING_EVERY = 0.2  # seconds between two calls at least
_REST = 1.0  # seconds between two calls when nothing is urgent, where the master does not say
_LONGEST_REST = 30.0
_BATCH = 1000  # lines in a call at most; as many do not wait
_BATCH_BYTES = 4 << 20  # of more lines than one
_BACKLOG = 20_000  # lines that wait at most; the master finds the others in the journal
_FLUSH = 3.0  # seconds that leaving waits for the master
_FLUSH_UNWRITTEN = 60.0  # the same when the master would be the only one to know


class _Line(NamedTuple):
    seq: int
    text: str
    written: bool


class Reports(Protocol):
    """Where a worker's reports go."""

    def start(self) -> None: ...

    def close(self) -> None: ...

    def report(self, kind: ReportKind, data: Dict[str, Any], *, durable: bool = False) -> Any: ...


class Reporter:
    """Reports of one attempt. Any thread may report.

    ``on_stop`` is called, from the reporter's thread, with the reason when the master's answer asks the attempt to stop.
    """

    def __init__(
        self,
        journal: Path,
        session: Session,
        attempt: AttemptId,
        on_stop: Callable[[str], None],
        refresh: Callable[[], Any],
    ) -> None:
        self._journal = JournalWriter(journal, lazy=True)
        self._session = session
        self._path = f"/api/v1/runs/{attempt.run}/attempts/{attempt.number}/events"
        self._on_stop = on_stop
        self._refresh = refresh
        self._lock = threading.Condition()
        self._waiting: Deque[_Line] = deque()
        self._closing = False
        self._give_up_at = float("inf")
        self._disk_refuses = False
        self._seq = 0  # of the last report
        self._urgent_seq = 0  # of the last one that is not to wait
        self._awaited_seq = 0  # of the last one whose verdict was waited for
        self._sent = 0  # the last one that the master was told of
        self._applied = 0  # the last one that the master is known to have applied
        self._settling = False
        self._failures = 0  # calls in a row
        self._thread = threading.Thread(target=self._ring, name="dethpc-doorbell", daemon=True)
        self._over = threading.Event()
        self._flusher = threading.Thread(target=self._flush, name="dethpc-journal", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._flusher.start()

    def report(self, kind: ReportKind, data: Dict[str, Any], *, durable: bool = False) -> Report:
        """Raises TypeError or ValueError when ``data`` is not JSON; the disk's and the master's troubles are not raised."""
        with self._lock:
            if self._closing:
                raise RuntimeError("the core context is closed: report inside `with core.init() as context:`")
            try:
                (report, line, urgent), written = self._journal.append_line(kind, data, durable=durable), True
                self._disk_refuses = False
            except NotWritten as refused:
                report, line, urgent, written = refused.report, refused.line, refused.durable, False
                if not self._disk_refuses:
                    self._disk_refuses = True
                    logger.warning(
                        "the journal cannot be written (%s); for now, reports only go to the master", refused
                    )
            if len(self._waiting) >= _BACKLOG:
                self._waiting = deque(line for line in self._waiting if not line.written)
            self._waiting.append(_Line(report.seq, line, written))
            self._seq = report.seq
            if urgent:
                self._urgent_seq = report.seq
            if urgent or len(self._waiting) in (
                1,
                _BATCH,
            ):  # to wake costs more than to write: only who did not know yet
                self._lock.notify_all()
        return report

    def settle(self, seconds: float) -> None:
        """Wait until the master has applied every report so far and ``on_stop`` has been called if they lead to that; not longer
        than ``seconds``, nor while the master cannot be reached."""
        until = time.monotonic() + seconds
        with self._lock:
            self._settling = True
            self._lock.notify_all()
            while self._applied < self._seq and not self._failures and self._thread.is_alive() and not self._closing:
                remaining = until - time.monotonic()
                if remaining <= 0:
                    break
                self._lock.wait(remaining)
            self._settling = False

    def await_verdict(self, seconds: float) -> None:
        """As ``settle``, once for each report that the search decides by; else at once."""
        if self._urgent_seq > max(self._applied, self._awaited_seq):
            self._awaited_seq = self._urgent_seq
            self.settle(seconds)

    def close(self) -> None:
        """Bring everything to disk, and give the master a moment to hear of it."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._over.set()
            try:
                self._journal.close()
                on_disk = True
            except OSError as error:
                on_disk = False
                logger.warning(
                    "the journal could not be completed (%s): waiting for the master to take the reports", error
                )
            self._give_up_at = time.monotonic() + (_FLUSH if on_disk else _FLUSH_UNWRITTEN)
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join(max(0.0, self._give_up_at - time.monotonic()) + 1.0)
        if not on_disk and self._waiting:
            logger.error("%d reports are lost: neither the disk nor the master accepted them", len(self._waiting))

    # --- the threads --------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Waits for the disk, so that reporting need not."""
        while not self._over.wait(SYNC_SECONDS):
            try:
                self._journal.flush()
            except OSError as error:
                logger.warning("the journal does not reach the disk: %s", error)

    def _ring(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                self._session.close()
                return
            try:
                lines = "".join(f"{line.text}\n" for line in batch).encode()
                answer = self._session.post(self._path, lines, idempotent=True)
                applied, rest = int(answer["appliedSeq"]), float(answer.get("ringAfter", _REST))
                stop = answer.get("stop")
            except RunOver as error:
                # Only the master itself says so, in this one way: whatever else goes wrong must not end a training.
                logger.warning("the master no longer takes reports of this attempt: %s", error)
                self._on_stop("superseded")
                self._session.close()
                with self._lock:
                    self._failures += 1
                    self._lock.notify_all()
                return
            except (DethpcError, OSError, KeyError, TypeError, ValueError) as error:
                with self._lock:
                    self._failures += 1
                    self._lock.notify_all()
                if self._failures == 3:
                    logger.info(
                        "the master cannot be reached (%s); training continues, and the journal keeps the reports",
                        error,
                    )
                self._refresh()
                if not self._pause(min(30.0, 0.25 * 2 ** min(self._failures, 8))):
                    return
                continue
            missed = self._delivered(batch, applied)
            if stop:
                self._on_stop(str(stop.get("reason") or "stop"))
            with self._lock:
                self._failures, self._applied = 0, max(applied, self._applied)
                self._lock.notify_all()
            if missed:
                self._pause(5.0)
            else:
                self._rest(min(rest, _LONGEST_REST))

    def _next_batch(self) -> Optional[List[_Line]]:
        """Wait for lines. Empty: just ask how far the master is. None: there is nothing more to do."""
        with self._lock:
            while not (self._waiting or self._closing or (self._settling and self._applied < self._seq)):
                self._lock.wait()
            if time.monotonic() >= self._give_up_at or (self._closing and not self._waiting):
                return None
            batch: List[_Line] = []
            size = 0
            for line in self._waiting:
                size += len(line.text)
                if len(batch) == _BATCH or (batch and size > _BATCH_BYTES):
                    break
                batch.append(line)
            return batch

    def _delivered(self, batch: List[_Line], applied: int) -> bool:
        """Forget what arrived. What is in the journal need not be sent again even if the master has not applied it yet: it
        reads the journal. True when a line that is nowhere else has to be sent again."""
        with self._lock:
            last = batch[-1].seq if batch else 0
            self._sent = max(last, self._sent)
            pending = [line for line in self._waiting if line.seq > last or (not line.written and line.seq > applied)]
            self._waiting = deque(pending)
            return any(line.seq <= last for line in pending)

    def _is_urgent(self) -> bool:
        """Whether what waits may wait no longer than it must."""
        return self._urgent_seq > self._sent or self._settling or len(self._waiting) >= _BATCH

    def _rest(self, seconds: float) -> None:
        """Between two calls, until something urgent is to be told."""
        begun = time.monotonic()
        with self._lock:
            while not self._closing:
                if self._settling and self._waiting:
                    return
                remaining = begun + (_RING_EVERY if self._is_urgent() else seconds) - time.monotonic()
                if remaining <= 0:
                    return
                self._lock.wait(remaining)

    def _pause(self, seconds: float) -> bool:
        """Sleep, though not beyond the end. False: it is time to give up."""
        until = time.monotonic() + seconds
        with self._lock:
            while True:
                now = time.monotonic()
                remaining = min(until, now + 0.1 if self._closing else until) - now
                if now >= self._give_up_at:
                    return False
                if remaining <= 0:
                    return True
                self._lock.wait(remaining)
                if self._closing:
                    until = min(until, time.monotonic() + 0.5)
