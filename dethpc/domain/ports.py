"""Ports to the world. The docstrings are the contract; each port has one contract test class that every adapter passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dethpc.domain.facts import Row
from dethpc.domain.nodes import NodeState
from dethpc.domain.records import Record

Fact = TypeVar("Fact")


# --- scheduler -------------------------------------------------------------------------------------------------------


class JobState(str, Enum):
    """A job's state, reduced to what its consequence needs. Terminal ones are the scheduler's word, not yet dethpc's."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"

    @property
    def live(self) -> bool:
        return self in (JobState.PENDING, JobState.RUNNING, JobState.COMPLETING)


SUSPENDED = "Suspended"
"""The reason of a job that is RUNNING, holds what it was given, and does not get on until the scheduler resumes it."""


TRIALS, TASKS, HOUSEKEEPING = "trials", "tasks", "housekeeping"
"""Queues of jobs without slots, where the scheduler has such: of trials, of what people launch and may keep open for long, and of
what the master does itself, such as removing files. None waits behind another."""


@dataclass(slots=True)
class JobRequest:
    """A batch script to run. ``script`` already holds every directive; nothing else is passed on the command line."""

    run_id: str
    name: str  # ids.job_name(...)
    script: Path
    run_dir: Path
    slots: int
    env: Mapping[str, str] = field(default_factory=dict)  # the complete environment of the submission
    nice: int = 0  # said in the script's directives, too
    queue: str = TRIALS
    alike: str = (
        ""  # what it asks for: jobs for which that is the same may be elements of one array; empty: it goes alone
    )


@dataclass(slots=True)
class ArrayRequest:
    """Jobs that are alike, as one job array: element ``i`` is ``jobs[i]``. ``script`` starts the script of each by its element's
    number, and holds every directive but the number of elements."""

    name: str  # ids.job_name(...) of the array, which all elements share
    script: Path
    folder: Path
    jobs: Sequence[JobRequest]


@dataclass(slots=True)
class JobRecord:
    """What the scheduler says of one job."""

    job_id: str
    name: str
    state: JobState
    reason: str = ""  # while pending: the scheduler's reason word, e.g. "Resources"; once it has ended: in words, if there are any
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    restarts: int = 0
    preempted: bool = False  # the scheduler preempted it at least in this attempt
    preempted_at: float | None = None  # when it last did, in whichever attempt
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    priority: int | None = None  # while pending: the scheduler starts the greatest first; ``nice`` is taken off already
    nice: int | None = None


LEFT_ITS_ARRAY = "LeftItsArray"
"""Reason of a job, an element of an array which is known without it: it was cancelled, or has started and is forgotten."""


@dataclass(slots=True)
class PoolInfo:
    """A resource pool as the scheduler sees it now."""

    name: str
    partition: str
    nodes: int
    slots: int
    slots_used: int
    slot_type: str = "cuda"  # cuda, rocm, cpu
    max_time: float | None = None  # seconds
    max_nodes: int | None = None  # of one job
    available: str = "up"  # the partition's state: up, down, drain, inact
    default: bool = False
    description: str = ""


@dataclass(slots=True)
class NodeInfo:
    """A compute node as the scheduler sees it now."""

    name: str
    state: NodeState
    slots: int
    slots_used: int
    pools: tuple[str, ...] = ()
    slot_type: str = "cuda"
    cpus: int = 0
    memory_mb: int = 0
    reason: str = ""
    address: str = ""


@dataclass(slots=True)
class QueuedJob:
    """Anybody's job that waits for a partition or runs there, as far as the site shows it."""

    job_id: str
    mine: bool
    running: bool
    nodes: int = 1  # how many
    priority: int = 0  # the larger the sooner
    start: float | None = None  # when it started; of a waiting one when the scheduler expects it to
    places: tuple[str, ...] = ()  # names of the nodes that a running one holds


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a scheduler says of a job that is not submitted yet, in its own words; "" and None where it says nothing.

    ``refusal``: it takes no such job, however long one waits. ``hindrance``: it does not take it at present. ``start``: when such a
    job would start, in epoch seconds.
    """

    refusal: str = ""
    hindrance: str = ""
    start: float | None = None


class Scheduler(Protocol):
    """Where runs are executed.

    Every method may block and may be called from any thread, several at the same time. All methods except ``submit`` are
    idempotent. ``Raises: SchedulerUnavailable`` from any method when the scheduler does not answer; nothing is known then, least of
    all that a job is gone.
    """

    @property
    def kind(self) -> str:
        """``slurm`` or ``local``."""
        ...

    @property
    def identity(self) -> str:
        """Which scheduler of its kind: ``KIND:NAME``, the same as long as it is the one that remembers the same jobs. Another one
        knows nothing of them, which is no evidence that they are over."""
        ...

    @property
    def settle(self) -> float:
        """Seconds after an unclear submission in which its job may still appear."""
        ...

    def submit(self, job: JobRequest) -> str:
        """Submit and return the scheduler's job id.

        Raises: SubmitRejected (for good; the message is the scheduler's), SubmitDeferred (not at present), SubmitUncertain (the
        job may exist: look it up).
        """
        ...

    def prospect(self, script: Path, env: Mapping[str, str], folder: Path) -> Prospect:
        """What would become of a job with this script, from ``folder`` and with ``env``. No job comes of the question. It takes 2 s
        at most, and is left out where a limit allows no request now: silence says nothing. Raises nothing of the scheduler's."""
        ...

    @property
    def largest_array(self) -> int:
        """How many jobs one array may have; 0: this scheduler has no arrays."""
        ...

    def submit_array(self, array: ArrayRequest) -> list[str]:
        """Submit all jobs in one go and return their ids (``ids.element_id``), in their order: all or none.

        Each is a job of its own for every other method. Raises as ``submit`` does.
        """
        ...

    def jobs(self) -> dict[str, JobRecord]:
        """All of this user's jobs that the scheduler still lists, by job id, in one query whatever their number."""
        ...

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """Records of jobs that ``jobs`` no longer lists, as far as the site keeps them (accounting). Missing: unknown."""
        ...

    def element(self, number: str) -> str | None:
        """The id of the element of a job array that has this number of its own besides. None: no element that the scheduler still
        knows has it."""
        ...

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        """Jobs with any of these names, live or ended, newest last, in one question whatever their number.

        That a job is missing proves nothing until it is missing again later.
        """
        ...

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs now: TERM to all processes, then KILL. Unknown or ended jobs are ignored."""
        ...

    def requeue(self, job_id: str) -> None:
        """Stop the job and queue it again under the same job id; its next start has one restart more."""
        ...

    def nice(self, values: Mapping[str, int]) -> None:
        """Set how far pending jobs step back in the queue (job id -> 0 or more). Unknown and running jobs are ignored."""
        ...

    def start_now(self, job_ids: Sequence[str]) -> None:
        """Let jobs that were queued again, and that the scheduler holds back for a while, start as soon as there is room."""
        ...

    def pools(self) -> list[PoolInfo]: ...

    def nodes(self) -> list[NodeInfo]: ...

    def queue(self, partition: str) -> list[QueuedJob]:
        """Everybody's jobs in a partition that wait or run, in one query. For a question that a person asked, never per cycle."""
        ...


# --- store -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Snapshot:
    """What the engine folds at start: by kind, every row that a live experiment needs, and all that belong to no experiment."""

    rows: Mapping[type, list[Any]]
    next_experiment_id: int
    next_trial_id: int

    def of(self, fact: type[Fact]) -> list[Fact]:
        """The rows of one kind."""
        return self.rows.get(fact, [])


class Store(Protocol):
    """The state database. One writer, many readers.

    ``commit`` is atomic and durable when it returns; concurrent calls may share one transaction (group commit). Readers see
    committed rows only. ``Raises: StoreError`` from any method when the database fails; after a failed commit nothing of it
    is stored.
    """

    def commit(self, rows: Sequence[Row | Record]) -> None:
        """Write the rows in order. A row replaces the one with the same key; a Metric or a WebhookDelivery that exists already is
        left alone.

        When an Attempt's ``void_after`` is set, metrics of that attempt with a larger ``seq`` no longer count: they leave every
        reader's answer and the summaries. So do those with a ``seq`` below zero, which are in no order with the others, of more
        steps than the checkpoint that has ``void_after`` for its ``seq``; without such a checkpoint all of them.
        """
        ...

    def load(self) -> Snapshot: ...

    def put(self, record: Record) -> None:
        """Write a record in the place of the one with the same key; atomic and durable when it returns."""
        ...

    def drop(self, record: Record) -> None:
        """Delete the record with the same key; nothing happens where there is none."""
        ...

    def close(self) -> None: ...
