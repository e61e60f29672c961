"""Takes in the journal lines that attempts post to the master, and answers whether the attempt should stop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import takewhile
from typing import Protocol

from dethpc import storage
from dethpc.domain.facts import Row
from dethpc.domain.ids import AttemptId
from dethpc.domain.reports import Report, ReportKind, fault
from dethpc.domain.states import Intent
from dethpc.domain.trial_config import TrialConfig
from dethpc.engine import events
from dethpc.master.durable.ledger import Ledger
from dethpc.master.watching.foreign_checkpoints import taken_over
from dethpc.rundir.journal import from_line, number_of
from dethpc.state.store import SqlStore

LEAST_REST = 1.0
"""Seconds."""

MOST_RINGS = 200
"""A second, of all attempts together, while none has anything urgent to say. Each costs the same, however much it tells."""

MOST_WAIT, WAIT_OF_EACH = 0.05, 0.001
"""Seconds for which what is not urgent waits to be committed with what others tell: at most, and for each attempt that there is."""


class Visitors(Protocol):
    """Those who look at run directories."""

    def heard(self, run_id: str) -> None:
        """The bell brought all that there was to tell."""

    def rung(self, run_id: str, *, every_attempt: bool = False) -> None:
        """The run's directory has more, perhaps of an attempt that is not known yet: look now."""


class Doorbell:
    """Every method may be called from any thread."""

    def __init__(self, ledger: Ledger, store: SqlStore, visitors: Visitors) -> None:
        self._ledger, self._store, self._visitors = ledger, store, visitors

    def take(self, attempt: AttemptId, lines: Sequence[str | bytes]) -> Future[list[Row]] | None:
        """Journal lines from a run. Once they are committed, ``answer`` can be asked for. None: nothing need be committed.

        Raises ValueError when a line is damaged, and what ``Ledger.post`` raises."""
        if not lines or self._ledger.state.attempt(*attempt) is None:
            return None
        reports = [from_line(line) for line in lines]
        # What is unsound is told of when the journal is read, as all that follows then is.
        sound = list(takewhile(lambda report: not fault(report) and self._is_of_its_own(attempt, report), reports))
        others = taken_over(self._ledger, self._store, attempt.run, sound)
        event = events.Reported(attempt.run, attempt.number, sound, time.time(), others=others, sound=True)
        urgent = any(report.durable for report in sound)
        return self._ledger.post(event, 0.0 if urgent else min(MOST_WAIT, WAIT_OF_EACH * len(self._ledger.state.runs)))

    def answer(self, attempt: AttemptId, lines: Sequence[str | bytes]) -> tuple[int, str | None]:
        """Once ``lines`` are taken in: the last sequence number applied, and why the run should stop, if it should."""
        attempt_state = self._ledger.state.attempt(*attempt)
        if attempt_state is None or not lines:
            self._visitors.rung(attempt.run, every_attempt=attempt_state is None)
        if attempt_state is None:
            return 0, self.stop_reason(attempt)
        applied = attempt_state.applied_seq
        if lines and applied < number_of(lines[-1]):
            self._visitors.rung(attempt.run)  # a gap: the journal has what is missing
        elif lines:
            self._visitors.heard(attempt.run)
        return applied, self.stop_reason(attempt)

    def rest(self) -> float:
        """Seconds for which an attempt with nothing urgent to say should not ring again: longer the more attempts there are."""
        return max(LEAST_REST, len(self._ledger.state.runs) / MOST_RINGS)

    def _is_of_its_own(self, attempt: AttemptId, report: Report) -> bool:
        """Whether the report names no other storage than the experiment's, and no other trial's checkpoint as damaged. A token may
        be stolen, and where a checkpoint is decides whose files are deleted with it: that the training code chose another place,
        or finds fault with what others made, is believed of the journal alone."""
        if report.kind == ReportKind.CHECKPOINT_DAMAGED:
            run = self._ledger.state.runs.get(attempt.run)
            trial = run and self._ledger.state.trial_of(run)
            return not trial or trial.source_checkpoint != report.data["uuid"]
        place = report.data.get("storage") if report.kind == ReportKind.CHECKPOINT else None
        if not place:
            return True
        run = self._ledger.state.runs.get(attempt.run)
        experiment = self._ledger.state.experiments.get((run and run.experiment_id) or -1)
        if experiment is None:
            return False
        return not storage.elsewhere(place, TrialConfig.from_json(experiment.row.config).checkpoint_storage)

    def stop_reason(self, attempt: AttemptId) -> str | None:
        """Why the attempt should checkpoint and end; None while it should go on. Returns at once."""
        run = self._ledger.state.runs.get(attempt.run)
        if run is None:
            return "the run is over"
        if run.attempt > attempt.number:
            return "a later attempt of the run has begun"
        # A kill comes by the scheduler's signals and leaves no time for a checkpoint: nothing to tell.
        return run.intent_reason if run.intent is Intent.STOP else None
