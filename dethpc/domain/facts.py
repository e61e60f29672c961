"""The facts dethpc keeps. One instance is one row; a change is a new value of a row.

Instances are treated as values: code that decides makes a new one with ``dataclasses.replace`` and never alters one in place.
Times are seconds since the epoch (UTC).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

from dethpc.domain.ids import OWNER_ID
from dethpc.domain.states import AttemptState, CheckpointState, End, Intent, RunState, State, TaskKind

SPARSE = {"sparse": True}
"""Of a field that older releases have not: change logs name it only where its value is not the default, so rows that an older
release wrote still equal their lines."""

_NOTHING: dict[str, Any] = {}


def nothing() -> dict[str, Any]:
    """An empty dict for a row to hold, the same for all: every trial has two, and each would take 64 bytes of memory for ever. Like
    all that rows hold, it is never altered."""
    return _NOTHING


@dataclass(slots=True)
class Experiment:
    """One config plus one context directory; owns a searcher and its trials."""

    id: int
    owner: str
    config: dict[str, Any]  # validated, all defaults filled in
    original_config: str  # the YAML as the user wrote it
    state: State
    created_at: float
    seed: int
    queue_id: str  # uuid of its entry in the job queue
    context_sha256: str = ""
    name: str = ""
    description: str = ""
    labels: list[str] = field(default_factory=list)
    notes: str = ""
    archived: bool = False
    project_id: int = 1
    pool: str = ""
    priority: int = 42
    weight: float = 1.0
    max_slots: int | None = None
    slots_per_trial: int = 1
    started_at: float | None = None
    ended_at: float | None = None
    progress: float = 0.0
    parent_id: int | None = None
    reason: str = ""  # why it is in this state, in words
    kind: TaskKind = TaskKind.TRIAL  # of its trials' tasks
    imported_run: str = ""  # the id of the run that it was imported from, or the token of the copy
    queue_position: float = 0.0  # among those of its pool and priority; when it was created, until somebody moves it
    served: float = 0.0  # slot-seconds over weight that its ended runs have had in a fair-share pool
    metric: str = ""  # the searcher's, as its configuration names it
    smaller_is_better: bool = True
    warning: str = ""  # what a trial was first found to report amiss, while no trial was found to report it right
    external_id: str = ""  # what scripts elsewhere call it
    collect: bool = False  # those of its checkpoints that its policy does not keep are still to be chosen
    ended_seconds: float = field(default=0.0, metadata=SPARSE)  # ended before it was continued; no part of its duration
    user_id: int = field(default=OWNER_ID, metadata=SPARSE)  # of the user who created it, whose name may change

    @property
    def queue_number(self) -> int:
        """Its place among jobs of the same instant."""
        return self.id

    def duration(self, now: float) -> float:
        """Seconds in which it had not ended, up to ``now``."""
        return max(0.0, (self.ended_at or now) - self.created_at - self.ended_seconds)


@dataclass(slots=True)
class Trial:
    """One hyperparameter configuration being trained."""

    id: int
    experiment_id: int
    index: int  # 0-based within the experiment, in order of creation
    hparams: dict[str, Any]
    seed: int
    state: State
    created_at: float
    request_id: str = ""  # uuid, Determined's request id
    search: dict[str, Any] = field(default_factory=nothing)  # what its searcher decided: bracket, lengths; and Noted
    restarts: int = 0
    runs: int = 0  # how many runs it has had
    lost: int = 0  # attempts lost without evidence in a row
    steps_completed: int = 0
    latest_checkpoint: str | None = None
    source_checkpoint: str | None = None  # whose weights it starts from (warm start, PBT)
    best_validation: float | None = None  # searcher metric
    latest_validation: float | None = None
    best_validation_steps: int | None = None
    progress: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    early_exit: str = ""  # why its run ends early, as that reported: EXITED_REASON_*, or a damaged checkpoint
    metadata: dict[str, Any] = field(default_factory=nothing)  # as user code or the owner set it
    status: str = ""  # what user code says that it is doing
    stalled: int = 0  # attempts in a row that left no checkpoint further on than where they began; see engine.trials
    not_before: float | None = None  # it rests until then, after a failure
    warning: str = ""  # why its search can do nothing with what it reports
    external_id: str = ""  # what scripts elsewhere call it, within its experiment
    image: str = (
        ""  # digest of the image that its containers start from, once it was pulled; further runs take the same
    )
    ended_seconds: float = field(default=0.0, metadata=SPARSE)  # ended before it was continued; no part of its duration

    def duration(self, now: float) -> float:
        """Seconds since it first started, or since it was created, in which it had not ended, up to ``now``."""
        return max(0.0, (self.ended_at or now) - (self.started_at or self.created_at) - self.ended_seconds)


@dataclass(slots=True)
class Task:
    """What is scheduled: a run belongs to a task.

    A trial's task comes and ends with the trial. Its pool, slots, priority, weight, place in the queue and configuration are its
    experiment's: the fields below ``reason`` mean nothing for a trial's task. ``state`` is ACTIVE until the task has ended;
    whether a trial is paused is said by its own row.
    """

    id: str
    kind: TaskKind
    queue_id: str  # of the job in the queue that its runs count for: its experiment's, or its own
    owner: str
    state: State
    created_at: float
    experiment_id: int | None = None
    trial_id: int | None = None
    ended_at: float | None = None
    reason: str = ""  # why it is in this state, in words
    name: str = ""
    config: dict[str, Any] = field(default_factory=nothing)
    pool: str = ""
    slots: int = 0  # of each of its runs
    priority: int = 42
    weight: float = 1.0
    queue_position: float = 0.0
    served: float = 0.0  # slot-seconds over weight that its ended runs have had in a fair-share pool
    runs: int = 0  # how many it has had
    user_id: int = field(default=OWNER_ID, metadata=SPARSE)  # of the user who launched it, whose name may change

    @property
    def queue_number(self) -> int:
        """Its place among jobs of the same instant: before experiments."""
        return 0


@dataclass(slots=True)
class Run:
    """One submission of a task to the scheduler: one Slurm job. A row in SUBMITTING is the wish to submit."""

    id: str
    experiment_id: int | None  # whose change log and snapshot hold the row; None: a task of its own
    task_id: str
    number: int  # 1-based within the task
    state: RunState
    created_at: float
    slots: int
    pool: str
    intent: Intent = Intent.GO
    intent_reason: str = ""
    token_sha256: str = ""
    scheduler_job_id: str | None = None
    attempt: int = -1  # latest attempt that started, -1: none
    nodes: list[str] = field(default_factory=list)
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    end: End | None = None
    reason: str = ""  # pending reason, or why it ended, in words
    exit_code: int | None = None
    stopping_since: float | None = None
    nice: int = 0  # how far it steps back in the scheduler's own queue
    scheduler: str = ""  # ``Scheduler.identity`` of the one that has its job; no other can tell what became of it


@dataclass(slots=True)
class Attempt:
    """One start of a run, and how much of its journal has been applied."""

    run_id: str
    number: int  # 0-based within the run
    experiment_id: int | None  # as of its run
    task_id: str
    state: AttemptState
    started_at: float
    ended_at: float | None = None
    applied_seq: int = 0  # last journal sequence number applied
    applied_offset: int = 0  # bytes of the journal applied
    resumed_from: str | None = None  # checkpoint uuid
    resumed_steps: int = 0
    void_after: int | None = None  # journal events after this sequence number do not count
    nodes: list[str] = field(default_factory=list)
    end: End | None = None
    reason: str = ""
    first_at: float | None = None  # its first report of steps, and how many were done by then
    first_steps: int | None = None
    last_at: float | None = None  # its last one
    last_steps: int | None = None
    saved_at: float | None = None  # its last checkpoint
    saving: float | None = None  # seconds for which training stood still at its checkpoints
    kept_at: float | None = None  # until when its training counts; None: no later attempt has trained any of it again


@dataclass(slots=True)
class NodeHealth:
    """What is held against a compute node. One that nothing was ever held against has no row."""

    name: str
    failures: list[dict[str, Any]] = field(default_factory=list)  # at, trial, run, weight, kind, message; oldest first
    excluded_since: float | None = None  # no trial is sent there since
    excluded_until: float | None = None  # and until then; None: until somebody enables it
    reason: str = ""  # why, in words

    def excluded(self, at: float) -> bool:
        return self.excluded_since is not None and (self.excluded_until is None or at < self.excluded_until)


EVERYTHING = "**/*"
"""The glob that takes a checkpoint whole."""


@dataclass(slots=True)
class Checkpoint:
    """A published checkpoint."""

    uuid: str
    experiment_id: int
    trial_id: int
    run_id: str
    attempt: int
    seq: int
    state: CheckpointState
    steps_completed: int
    reported_at: float
    metadata: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, int] = field(default_factory=dict)  # relative path -> bytes (directories end in "/", 0 bytes)
    storage: dict[str, Any] = field(default_factory=dict)  # the checkpoint_storage section it was written with
    seconds: float | None = None  # how long saving it took; None: not measured
    reason: str = ""  # why it is in this state, in words: what is damaged
    size: int = 0  # bytes of its resources together, whatever is given
    removing: str = ""  # globs, one a line, of files that a task is still to remove; "": none

    def __post_init__(self) -> None:
        self.size = sum(self.resources.values())

    @property
    def decided(self) -> CheckpointState:
        """The state that it comes to. It has it once a task has removed the files that are ``removing``; nobody starts from it, or
        counts on its files, from the wish on."""
        if not self.removing or self.state is CheckpointState.DELETED:
            return self.state
        return CheckpointState.DELETED if self.removing == EVERYTHING else CheckpointState.PARTIALLY_DELETED


@dataclass(slots=True)
class Metric:
    """One report of a group of metrics. Identified by (run_id, attempt, seq), the journal event it came from; never altered.

    ``seq`` is below zero where it did not come from the attempt's chief: report -n is number n of ``AttemptDir.master_journal``.
    """

    run_id: str
    attempt: int
    seq: int
    experiment_id: int
    trial_id: int
    group: str  # "training", "validation", or any name
    steps_completed: int
    reported_at: float
    metrics: dict[str, Any]


@dataclass(slots=True)
class SearchNote:
    """Something a searcher decided and must remember, such as a value that entered a rung."""

    experiment_id: int
    seq: int  # 1-based within the experiment
    trial_index: int
    kind: str
    data: dict[str, Any]


@dataclass(slots=True)
class PoolState:
    """What was last seen of a resource pool, and what follows for its queue."""

    name: str
    window: int  # how many runs may wait in the scheduler's own queue
    seen_at: float = 0.0
    free: list[list[int]] = field(default_factory=list)  # pairs: free slots, how many nodes have as many
    node_slots: int = 0  # of the largest node
    started: int = 0  # runs that started since the look before
    turn: float = 0.0  # seconds that a run lasts, roughly; 0: not known


Row = Union[PoolState, NodeHealth, Experiment, Trial, Task, SearchNote, Run, Attempt, Checkpoint, Metric]
"""What a Change writes. ``apply`` puts the row in the place of the one with the same key, save those of ``ADDED_ONLY``."""

KEYS: dict[type, tuple[str, ...]] = {
    PoolState: ("name",),
    NodeHealth: ("name",),
    Experiment: ("id",),
    Trial: ("id",),
    Task: ("id",),
    SearchNote: ("experiment_id", "seq"),
    Run: ("id",),
    Attempt: ("run_id", "number"),
    Checkpoint: ("uuid",),
    Metric: ("run_id", "attempt", "seq"),
}
"""The fields that tell the rows of one kind apart, in the order in which a fold takes the kinds in: what others refer to first."""

ADDED_ONLY: frozenset[type] = frozenset({Metric, SearchNote})
"""Rows that are never altered: a second one with the same key is left out."""

IN_MEMORY: tuple[type[Any], ...] = tuple(fact for fact in KEYS if fact is not Metric)
"""What the engine folds; metrics stay in the database."""


def key(row: Any) -> tuple[Any, ...]:
    """What tells ``row`` apart from the others of its kind."""
    return tuple(getattr(row, name) for name in KEYS[type(row)])
