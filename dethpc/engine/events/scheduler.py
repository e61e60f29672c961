"""What became of a submission, and what the scheduler says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dethpc.domain.ports import JobRecord
from dethpc.engine.queueing.nice import PendingJob


@dataclass(slots=True)
class Prepared:
    """The run directory is about to be written, with a token whose digest this is."""

    run_id: str
    token_sha256: str
    at: float


@dataclass(slots=True)
class Submitted:
    """The scheduler has the run under ``job_id``. ``scheduler``: its identity; "" where only a claim tells of it."""

    run_id: str
    job_id: str
    at: float
    scheduler: str = ""


@dataclass(slots=True)
class SchedulerKnown:
    """The scheduler with this identity has the run's job."""

    run_id: str
    scheduler: str
    at: float


@dataclass(slots=True)
class SubmitFailed:
    """The scheduler refused the run for good."""

    run_id: str
    message: str
    at: float


@dataclass(slots=True)
class SubmitDeferred:
    """The scheduler does not take the run at present; it is submitted again. ``why``: its words."""

    run_id: str
    why: str
    at: float


@dataclass(slots=True)
class JobSeen:
    """The scheduler lists the run's job as pending or running."""

    run_id: str
    record: JobRecord
    at: float


@dataclass(slots=True)
class QueueSeen:
    """The scheduler's queue and nodes were looked at.

    ``nodes``: by pool, free and all slots of each node that works; empty: they were not looked at. ``started``: by pool, how many
    runs started since the look before. ``waiting``: by run id, its job's place in the scheduler's queue.
    """

    nodes: Mapping[str, Sequence[tuple[int, int]]]
    started: Mapping[str, int]
    waiting: Mapping[str, PendingJob]
    at: float
