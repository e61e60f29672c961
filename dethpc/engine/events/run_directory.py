"""What a run directory says of its attempts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.log_policies import LogMatch
from dethpc.domain.facts import Attempt, Checkpoint
from dethpc.domain.ports import JobRecord
from dethpc.domain.reports import Report


@dataclass(slots=True)
class AttemptStarted:
    """An attempt wrote ``started.json``."""

    run_id: str
    attempt: int
    nodes: list[str]
    resumed_from: str | None
    resumed_steps: int
    at: float


@dataclass(slots=True)
class Reported:
    """Reports of one attempt, in order. ``offset`` is the journal's read position after them, when they were read there.

    ``remains``: nobody writes the journal any more. What is missing between them is gone, and the rest counts. ``others``: uuids
    among them that are checkpoints of other trials, which no report takes over. ``sound``: somebody has looked already that
    nothing is wrong with any of them.
    """

    run_id: str
    attempt: int
    reports: Sequence[Report]
    at: float
    offset: int | None = None
    remains: bool = False
    others: Collection[str] = ()
    sound: bool = False


@dataclass(slots=True)
class Posted:
    """Metrics of an attempt that did not come from its chief: other workers', or posted to the master. ``attempt`` is its row as
    the store has it, and may be that of a trial that has ended; the numbers of ``reports`` are below zero."""

    trial_id: int
    attempt: Attempt
    reports: Sequence[Report]


@dataclass(slots=True)
class SourceDamaged:
    """A trial was to begin at a checkpoint of another, which failed its checks. ``checkpoint`` is its row as the store has it, and
    ``others`` are those of the same trial: of trials that are over the engine remembers none."""

    checkpoint: Checkpoint
    why: str
    at: float
    others: Sequence[Checkpoint] = ()


@dataclass(slots=True)
class AttemptEnded:
    """An attempt is over, as far as anyone can tell; its journal has been read to the end.

    ``report`` is the content of ``end.json``; ``record`` what the scheduler says; ``stop_reason`` the reason in ``stop.json``,
    if the attempt had been asked to stop; ``log_tail`` the end of the batch script's own output, the only evidence when nothing
    else was written. ``requeued`` means that the scheduler will start the same job again. ``attempt`` is -1 when no
    attempt ever started. ``rest``: seconds that the trial rests after its first failure; after each further one twice as long.
    """

    run_id: str
    attempt: int
    report: EndReport | None
    record: JobRecord | None
    at: float
    requeued: bool = False
    log_tail: str = ""
    stop_reason: str = ""
    rest: float = 0.0
    down: Sequence[str] = ()  # nodes of the attempt that the scheduler calls down now
    missing: int = 0  # reports of the attempt that are damaged or gone
    matched: Sequence[LogMatch] = ()  # what its log policies found
