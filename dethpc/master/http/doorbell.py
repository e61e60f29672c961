"""Attempts ring when they have written to their journals, and hear whether they should stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import takewhile

from dethpc.domain.facts import Attempt
from dethpc.domain.ids import AttemptId
from dethpc.domain.reports import fault
from dethpc.domain.states import Intent
from dethpc.engine import events
from dethpc.master.durable.ledger import Ledger
from dethpc.rundir.journal import from_line


class Doorbell:
    """``wake`` has the run directories read at once. Every method may be called from any thread."""

    def __init__(self, ledger: Ledger, wake: Callable[[], None]) -> None:
        self._ledger, self._wake = ledger, wake

    def ring(self, attempt: AttemptId, lines: list[str]) -> tuple[int, str | None]:
        """Journal lines from a run: returns the last sequence number applied, and why the run should stop, if it should."""
        known = self._ledger.state.attempt(*attempt)
        if known is None or not lines:
            self._wake()
        if known is None:
            return 0, self.stop_reason(attempt)
        applied = known.applied_seq
        if lines:
            reports = [from_line(line) for line in lines]
            sound = list(
                takewhile(lambda report: not fault(report), reports)
            )  # the rest is said when the journal is read
            rows = self._ledger.do(events.Reported(attempt.run, attempt.number, sound, time.time()))
            applied = max([applied, *(row.applied_seq for row in rows if isinstance(row, Attempt))])
            if applied < reports[-1].seq:
                self._wake()  # a gap: the journal has what is missing
        return applied, self.stop_reason(attempt)

    def stop_reason(self, attempt: AttemptId) -> str | None:
        """Why the attempt should checkpoint and end; None while it should go on. Returns at once."""
        run = self._ledger.state.runs.get(attempt.run)
        if run is None:
            return "the run is over"
        # A kill comes by the scheduler's signals and leaves no time for a checkpoint: nothing to tell.
        return run.intent_reason if run.intent is Intent.STOP else None

    def should_stop(self, attempt: AttemptId) -> bool:
        return self.stop_reason(attempt) is not None
