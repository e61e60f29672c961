"""Attempts ring when they have written to their journals, and hear whether they should stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import takewhile

from dethpc import storage
from dethpc.domain.facts import Attempt
from dethpc.domain.ids import AttemptId
from dethpc.domain.reports import Report, ReportKind, fault
from dethpc.domain.states import Intent
from dethpc.domain.trial_config import TrialConfig
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
            # What is unsound is told of when the journal is read, as all that follows then is.
            sound = list(takewhile(lambda report: not fault(report) and self._is_of_its_own(attempt, report), reports))
            rows = self._ledger.do(events.Reported(attempt.run, attempt.number, sound, time.time()))
            applied = max([applied, *(row.applied_seq for row in rows if isinstance(row, Attempt))])
            if applied < reports[-1].seq:
                self._wake()  # a gap: the journal has what is missing
        return applied, self.stop_reason(attempt)

    def _is_of_its_own(self, attempt: AttemptId, report: Report) -> bool:
        """Whether the report names no other storage than the experiment's, and no other trial's checkpoint as damaged. A token may
        be stolen, and where a checkpoint is decides whose files are deleted with it: that the training code chose another place,
        or finds fault with what others made, is believed of the journal alone."""
        if report.kind == ReportKind.CHECKPOINT_DAMAGED:
            run = self._ledger.state.runs.get(attempt.run)
            trial = run and self._ledger.state.trial_of(run)
            return not trial or trial.source_checkpoint != report.data["uuid"]
        told = report.data.get("storage") if report.kind == ReportKind.CHECKPOINT else None
        if not told:
            return True
        run = self._ledger.state.runs.get(attempt.run)
        experiment = self._ledger.state.experiments.get((run and run.experiment_id) or -1)
        if experiment is None:
            return False
        return not storage.elsewhere(told, TrialConfig.from_json(experiment.row.config).checkpoint_storage)

    def stop_reason(self, attempt: AttemptId) -> str | None:
        """Why the attempt should checkpoint and end; None while it should go on. Returns at once."""
        run = self._ledger.state.runs.get(attempt.run)
        if run is None:
            return "the run is over"
        if run.attempt > attempt.number:
            return "a later attempt of the run has begun"
        # A kill comes by the scheduler's signals and leaves no time for a checkpoint: nothing to tell.
        return run.intent_reason if run.intent is Intent.STOP else None

    def should_stop(self, attempt: AttemptId) -> bool:
        return self.stop_reason(attempt) is not None
