"""What a user wants of experiments, tasks, the queue and nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Checkpoint, Metric
from dethpc.domain.ids import OWNER_ID
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import TaskKind
from dethpc.engine.changes import ExperimentChanges


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
    external_id: str = ""
    user_id: int = OWNER_ID


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
class TakeIn:
    """A copy of another installation's experiment, which has ended here whatever it did there.

    ``past``: its rows as they were there. ``token`` tells this copy from others of the same experiment."""

    past: Snapshot
    owner: str
    queue_id: str
    token: str
    at: float
    user_id: int = OWNER_ID


@dataclass(slots=True)
class TakeInMetrics:
    """Metrics of a copy that was taken in, as rows of this installation. The same ones may come again."""

    metrics: Sequence[Metric]


@dataclass(slots=True)
class Activate:
    experiment_id: int
    at: float


@dataclass(slots=True)
class ContinueExperiment:
    """Go on with an experiment that has ended, as ``config`` says from now on: with every trial that can go further, each from its
    latest checkpoint. ``past``: what the store has of the experiment; ``gone``: why nothing can begin at checkpoints at which some
    of its trials did, by uuid, in words."""

    experiment_id: int
    config: ExperimentConfig
    past: Snapshot
    at: float
    gone: Mapping[str, str] = field(default_factory=dict)


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
class Delete:
    """With its files. ``task_id``: a uuid for the task that removes them; ``checkpoints``: uuids of all that it has; ``needed``: as
    for ``ChangeCheckpoints``; ``pool``: where the task runs, None: in the experiment's."""

    experiment_id: int
    task_id: str
    at: float
    checkpoints: frozenset[str] = frozenset()
    needed: Mapping[str, str] = field(default_factory=dict)
    pool: str | None = None


@dataclass(slots=True)
class Operate:
    """A custom search method's operations, in Determined's wire form, in answer to its events up to ``event_id``."""

    experiment_id: int
    operations: list[dict[str, Any]]
    event_id: int
    at: float


@dataclass(slots=True)
class QueueChange:
    """What shall be different about a job of the queue: one of the fields, the others are None.

    ``queue_id``, ``ahead_of`` and ``behind_of`` are ids of jobs: of experiments or of tasks of their own.
    """

    queue_id: str
    priority: int | None = None
    weight: float | None = None
    pool: str | None = None
    ahead_of: str | None = None
    behind_of: str | None = None


@dataclass(slots=True)
class UpdateQueue:
    """Changes in their order, all or none of them."""

    changes: Sequence[QueueChange]
    at: float


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
    user_id: int = OWNER_ID


@dataclass(slots=True)
class KillTask:
    task_id: str
    at: float
    reason: str = "killed by a user"


@dataclass(slots=True)
class PauseTask:
    """Its job ends; a task of kind GENERIC begins anew when it goes on."""

    task_id: str
    at: float


@dataclass(slots=True)
class UnpauseTask:
    task_id: str
    at: float


@dataclass(slots=True)
class DisableNode:
    """No trial is to be sent to the node until somebody enables it. ``drain``: those that run there go on; else they checkpoint,
    stop, and go on elsewhere."""

    name: str
    reason: str
    at: float
    drain: bool = True


@dataclass(slots=True)
class EnableNode:
    """Trials may go to the node again, whatever was held against it."""

    name: str
    at: float


@dataclass(slots=True)
class ChangeCheckpoints:
    """Checkpoints as they are now. What a trial may still resume from, or another starts from, is not deleted.

    ``needed``: who else needs one, in words, by uuid: runs without a master, models."""

    checkpoints: Sequence[Checkpoint]
    at: float
    needed: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CheckpointsBrought:
    """They waited in the spool, and are in their storage now."""

    checkpoints: Sequence[Checkpoint]
    at: float


@dataclass(slots=True)
class CollectGarbage:
    """Checkpoints of an experiment that its policy does not keep. ``needed``: those that somebody needs all the same, as for
    ``ChangeCheckpoints``. ``last``: nothing else of it is to be chosen."""

    experiment_id: int
    checkpoints: Sequence[Checkpoint]
    needed: Collection[str]
    last: bool
    at: float


@dataclass(slots=True)
class FilesRemoved:
    """A task removed files. ``done``: by uuid the globs, and what it left of the checkpoint. ``refused``: of those among them that
    are not their experiment's, why, in words."""

    checkpoints: Sequence[Checkpoint]
    done: Mapping[str, tuple[Sequence[str], dict[str, int]]]
    at: float
    refused: Mapping[str, str] = field(default_factory=dict)
