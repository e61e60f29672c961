"""What can happen. Every event carries the time at which it was seen; the engine itself has no clock.

One module for each that speaks: users (``wishes``), training without a journal (``outside``), the ``scheduler``, the
``run_directory``, and the engine (``inside``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from dethpc.domain.facts import Experiment, Trial
from dethpc.engine.events.inside import Advanced, GoOn, Operated, Parked, Schedule, Served, Tick, TrialClosed, Validated
from dethpc.engine.events.outside import AddTrial, BeginTrial, DescribeTrial, EarlyExit
from dethpc.engine.events.run_directory import AttemptEnded, AttemptStarted, Posted, Reported, SourceDamaged
from dethpc.engine.events.scheduler import (
    JobSeen,
    Prepared,
    QueueSeen,
    SchedulerKnown,
    SubmitDeferred,
    SubmitFailed,
    Submitted,
)
from dethpc.engine.events.wishes import (
    Activate,
    Cancel,
    ChangeCheckpoints,
    ChangeExperiment,
    CheckpointsBrought,
    CollectGarbage,
    ContinueExperiment,
    CreateExperiment,
    CreateTask,
    Delete,
    DisableNode,
    EnableNode,
    FilesRemoved,
    ImportRun,
    Kill,
    KillTask,
    KillTrial,
    Operate,
    Pause,
    PauseTask,
    QueueChange,
    TakeIn,
    TakeInMetrics,
    UnpauseTask,
    UpdateQueue,
)


@dataclass(slots=True)
class LoadExperiment:
    """An experiment that ended long ago, as the store has it, is wanted in memory again; with its trials, in order, if given.

    ``then`` is what it is wanted for, and is decided at once: afterwards the experiment may leave memory again.
    """

    experiment: Experiment
    trials: Sequence[Trial] = ()
    then: Event | None = None


OfExperiment = Activate | Pause | Cancel | Kill | ChangeExperiment | Delete | Operate | AddTrial | CollectGarbage
"""Wishes about one experiment, which may have left memory."""

Event = Union[
    CreateExperiment,
    Activate,
    ContinueExperiment,
    GoOn,
    Pause,
    Cancel,
    Kill,
    KillTrial,
    ChangeExperiment,
    UpdateQueue,
    Delete,
    LoadExperiment,
    ImportRun,
    TakeIn,
    TakeInMetrics,
    Operate,
    CreateTask,
    KillTask,
    PauseTask,
    UnpauseTask,
    AddTrial,
    BeginTrial,
    EarlyExit,
    DescribeTrial,
    ChangeCheckpoints,
    CheckpointsBrought,
    CollectGarbage,
    FilesRemoved,
    DisableNode,
    EnableNode,
    Prepared,
    Submitted,
    SubmitDeferred,
    SubmitFailed,
    SchedulerKnown,
    JobSeen,
    QueueSeen,
    AttemptStarted,
    SourceDamaged,
    Posted,
    Reported,
    AttemptEnded,
    Tick,
    Schedule,
    Served,
    TrialClosed,
    Validated,
    Parked,
    Operated,
    Advanced,
]

__all__ = [
    "Activate",
    "AddTrial",
    "Advanced",
    "AttemptEnded",
    "AttemptStarted",
    "BeginTrial",
    "Cancel",
    "ChangeCheckpoints",
    "ChangeExperiment",
    "CheckpointsBrought",
    "CollectGarbage",
    "ContinueExperiment",
    "CreateExperiment",
    "CreateTask",
    "Delete",
    "DescribeTrial",
    "DisableNode",
    "EarlyExit",
    "EnableNode",
    "Event",
    "FilesRemoved",
    "GoOn",
    "ImportRun",
    "JobSeen",
    "Kill",
    "KillTask",
    "PauseTask",
    "UnpauseTask",
    "KillTrial",
    "LoadExperiment",
    "OfExperiment",
    "Operate",
    "Operated",
    "Parked",
    "Pause",
    "Posted",
    "Prepared",
    "QueueChange",
    "QueueSeen",
    "Reported",
    "Schedule",
    "SchedulerKnown",
    "Served",
    "SourceDamaged",
    "SubmitDeferred",
    "SubmitFailed",
    "Submitted",
    "TakeIn",
    "TakeInMetrics",
    "Tick",
    "TrialClosed",
    "UpdateQueue",
    "Validated",
]
