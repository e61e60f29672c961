"""What follows from other events inside the engine, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.ports import Snapshot
from dethpc.searcher.base import Exit


@dataclass(slots=True)
class Tick:
    """Time passes: deadlines that have been reached take effect."""

    at: float


@dataclass(slots=True)
class GoOn:
    """An experiment that had ended is in memory again, and goes on. The fields are those of ``ContinueExperiment``."""

    experiment_id: int
    config: ExperimentConfig
    past: Snapshot
    at: float
    gone: Mapping[str, str] = field(default_factory=dict)


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
class Advanced:
    """A trial has trained further."""

    experiment_id: int
    at: float


@dataclass(slots=True)
class Validated:
    trial_id: int
    length: float  # how long the trial has trained, in the searcher's unit
    metric: float
    at: float
