"""What can happen. Every event carries the time at which it was seen; the engine itself has no clock.

One list, however long: it is read as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.end_report import EndReport
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Trial
from dethpc.domain.ports import JobRecord
from dethpc.domain.reports import Report
from dethpc.domain.states import TaskKind
from dethpc.engine.changes import ExperimentChanges, TrialChanges
from dethpc.engine.nice import PendingJob
from dethpc.searcher.base import Exit

# --- a user's wishes


@dataclass(slots=True)
class CreateExperiment:
    owner: str
    config: ExperimentConfig
    original_config: str
    context_sha256: str
    seed: int
    queue_id: str
    activate: bool
    at: float
    parent_id: int | None = None
    project_id: int = 1
    kind: TaskKind = TaskKind.TRIAL
    imported_run: str = ""


@dataclass(slots=True)
class Activate:
    experiment_id: int
    at: float


@dataclass(slots=True)
class Pause:
    experiment_id: int
    at: float


@dataclass(slots=True)
class Cancel:
    """End the experiment; its trials checkpoint first."""

    experiment_id: int
    at: float


@dataclass(slots=True)
class Kill:
    """End the experiment now."""

    experiment_id: int
    at: float


@dataclass(slots=True)
class KillTrial:
    trial_id: int
    at: float


@dataclass(slots=True)
class ChangeExperiment:
    """What its owner wants to be different about an experiment."""

    experiment_id: int
    changes: ExperimentChanges
    at: float


@dataclass(slots=True)
class QueueChange:
    """What shall be different about a job of the queue: one of the fields, the others are None.

    ``ahead_of`` and ``behind_of`` are ids of other experiments.
    """

    experiment_id: int
    priority: int | None = None
    weight: float | None = None
    pool: str | None = None
    ahead_of: int | None = None
    behind_of: int | None = None


@dataclass(slots=True)
class UpdateQueue:
    """Changes in their order, all or none of them."""

    changes: Sequence[QueueChange]
    at: float


@dataclass(slots=True)
class Delete:
    experiment_id: int
    at: float


@dataclass(slots=True)
class LoadExperiment:
    """An experiment that ended long ago, as the store has it, is wanted in memory again; with its trials, in order, if given.

    ``then`` is what it is wanted for, and is decided at once: afterwards the experiment may leave memory again.
    """

    experiment: Experiment
    trials: Sequence[Trial] = ()
    then: Event | None = None


@dataclass(slots=True)
class ImportRun:
    """A run that was submitted without a master becomes an experiment of one trial. What it did follows as further events."""

    run_id: str
    job_id: str
    owner: str
    config: ExperimentConfig
    original_config: str
    context_sha256: str
    queue_id: str
    hparams: dict[str, Any]
    search: dict[str, Any]  # what the search keeps of the trial
    seed: int
    at: float


@dataclass(slots=True)
class Operate:
    """A custom search method's operations, in Determined's wire form, in answer to its events up to ``event_id``."""

    experiment_id: int
    operations: list[dict[str, Any]]
    event_id: int
    at: float


# --- tasks without a trial


@dataclass(slots=True)
class CreateTask:
    """``id``: a uuid. ``slots``: of its one run."""

    id: str
    kind: TaskKind
    owner: str
    name: str
    config: dict[str, Any]
    pool: str
    slots: int
    at: float
    priority: int = 42
    weight: float = 1.0


@dataclass(slots=True)
class KillTask:
    task_id: str
    at: float


# --- a script outside the cluster


@dataclass(slots=True)
class AddTrial:
    """A new trial of an unmanaged experiment. ``request_id``: a uuid; the same one does not make a second trial."""

    experiment_id: int
    hparams: dict[str, Any]
    request_id: str
    at: float


@dataclass(slots=True)
class BeginTrial:
    """A script starts an unmanaged trial. ``attempts`` and ``checkpoints`` are the trial's, as the store has them, where it had
    ended already."""

    trial_id: int
    resume: bool
    at: float
    attempts: Sequence[Attempt] = ()
    checkpoints: Sequence[Checkpoint] = ()


# --- outside of any journal


@dataclass(slots=True)
class EarlyExit:
    """A worker that has no journal found that the trial should end."""

    trial_id: int
    reason: str
    at: float


@dataclass(slots=True)
class DescribeTrial:
    """What the owner or the training code says of a trial: its metadata, its status."""

    trial_id: int
    changes: TrialChanges
    at: float


@dataclass(slots=True)
class ChangeCheckpoints:
    """Checkpoints as they are now. What a trial may still resume from, or another starts from, is not deleted."""

    checkpoints: Sequence[Checkpoint]
    at: float


# --- nodes


@dataclass(slots=True)
class DisableNode:
    """No trial is to be sent to the node until somebody enables it."""

    name: str
    reason: str
    at: float


@dataclass(slots=True)
class EnableNode:
    """Trials may go to the node again, whatever was held against it."""

    name: str
    at: float


# --- the scheduler's word


@dataclass(slots=True)
class Prepared:
    """The run directory is about to be written, with a token whose digest this is."""

    run_id: str
    token_sha256: str
    at: float


@dataclass(slots=True)
class Submitted:
    """The scheduler has the run under ``job_id``."""

    run_id: str
    job_id: str
    at: float


@dataclass(slots=True)
class SubmitFailed:
    """The scheduler refused the run for good."""

    run_id: str
    message: str
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


# --- the run directory's word


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
    """Reports of one attempt, in order. ``offset`` is the journal's read position after them, when they were read there."""

    run_id: str
    attempt: int
    reports: Sequence[Report]
    at: float
    offset: int | None = None


@dataclass(slots=True)
class AttemptEnded:
    """An attempt is over, as far as anyone can tell; its journal has been read to the end.

    ``report`` is the content of ``end.json``; ``record`` what the scheduler says; ``asked`` the reason in ``stop.json``, if the
    attempt had been asked to stop. ``requeued`` means that the scheduler will start the same job again. ``attempt`` is -1 when no
    attempt ever started. ``rest``: seconds that the trial rests after its first failure; after each further one twice as long.
    """

    run_id: str
    attempt: int
    report: EndReport | None
    record: JobRecord | None
    at: float
    requeued: bool = False
    log_tail: str = ""
    asked: str = ""
    rest: float = 0.0
    down: Sequence[str] = ()  # nodes of the attempt that the scheduler calls down now


@dataclass(slots=True)
class Tick:
    """Time passes: deadlines that have been reached take effect."""

    at: float


# --- what follows from other events, inside the engine


@dataclass(slots=True)
class Schedule:
    """Something changed that may let another trial start."""

    at: float


@dataclass(slots=True)
class Served:
    """A job has had that many slot-seconds of a pool that shares."""

    queue_id: str
    slot_seconds: float
    at: float


@dataclass(slots=True)
class TrialClosed:
    trial_id: int
    how: Exit
    at: float


@dataclass(slots=True)
class Parked:
    """A trial that waits for its searcher has no run any more."""

    trial_id: int
    at: float


@dataclass(slots=True)
class Operated:
    """A custom search method's operations took effect."""

    experiment_id: int
    at: float


@dataclass(slots=True)
class Validated:
    trial_id: int
    length: float  # how long the trial has trained, in the searcher's unit
    metric: float
    at: float


OfExperiment = Activate | Pause | Cancel | Kill | ChangeExperiment | Delete | Operate | AddTrial
"""Wishes about one experiment, which may have left memory."""

Event = Union[
    CreateExperiment,
    Activate,
    Pause,
    Cancel,
    Kill,
    KillTrial,
    ChangeExperiment,
    UpdateQueue,
    Delete,
    LoadExperiment,
    ImportRun,
    Operate,
    CreateTask,
    KillTask,
    AddTrial,
    BeginTrial,
    EarlyExit,
    DescribeTrial,
    ChangeCheckpoints,
    DisableNode,
    EnableNode,
    Prepared,
    Submitted,
    SubmitFailed,
    JobSeen,
    QueueSeen,
    AttemptStarted,
    Reported,
    AttemptEnded,
    Tick,
    Schedule,
    Served,
    TrialClosed,
    Validated,
    Parked,
    Operated,
]
