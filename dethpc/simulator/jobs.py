"""What is left on disk and with the scheduler of one simulated run: its job and its attempts' journals and end reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Run, Trial
from dethpc.domain.ports import JobRecord, JobState
from dethpc.domain.reports import Report, ReportKind

FINISHED = EndReport(finished=True, exit_code=0)
FAILED = EndReport(exit_code=1, phase="train", message="simulated error")


def stopped(reason: str) -> EndReport:
    """The end report of a training that checkpointed and left because it was asked to."""
    return EndReport(exit_code=0, acked=True, stop_reason=reason)


@dataclass(slots=True)
class Saved:
    """A simulated checkpoint."""

    uuid: str
    trial_id: int
    steps: int
    weights: Any


@dataclass(slots=True)
class Attempt:
    k: int
    started_at: float
    resumed: Saved | None
    resumed_steps: int
    nodes: list[str]
    journal: list[Report] = field(default_factory=list)
    over: bool = False
    end: EndReport | None = None
    record: JobRecord | None = None
    requeued: bool = False

    def write(self, at: float, kind: ReportKind, data: dict[str, Any]) -> None:
        self.journal.append(Report(len(self.journal) + 1, at, kind, data))


@dataclass(slots=True)
class Job:
    """One submission. ``steps`` and ``weights`` are those of the training process as of ``at``."""

    run: Run  # as it was submitted
    trial: Trial  # as it was when the run was submitted
    length: int  # steps of the whole trial
    targets: list[int]  # steps at which the searcher wants to compare trials, as of the submission
    checkpoint: Saved | None  # to start from
    metric: str
    unit: str  # the searcher's measure of training
    state: JobState = JobState.PENDING
    attempts: list[Attempt] = field(default_factory=list)
    stop: str = ""  # why the training was asked to stop; empty: it was not
    steps: int = 0
    weights: Any = None
    at: float = 0.0
    validations: int = 0
    turn: int = 0  # counts what was scheduled for this job; anything older is void

    def record(self, state: JobState) -> JobRecord:
        return JobRecord(self.run.id, "", state)
