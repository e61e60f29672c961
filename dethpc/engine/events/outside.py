"""What training code says that has no journal: scripts outside the cluster, and workers over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dethpc.domain.facts import Attempt, Checkpoint
from dethpc.engine.changes import TrialChanges


@dataclass(slots=True)
class AddTrial:
    """A new trial of an unmanaged experiment. ``request_id``: a uuid; the same one does not make a second trial."""

    experiment_id: int
    hparams: dict[str, Any]
    request_id: str
    at: float
    external_id: str = ""


@dataclass(slots=True)
class BeginTrial:
    """A script starts an unmanaged trial. ``attempts`` and ``checkpoints`` are the trial's, as the store has them, where it had
    ended already."""

    trial_id: int
    resume: bool
    at: float
    attempts: Sequence[Attempt] = ()
    checkpoints: Sequence[Checkpoint] = ()


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
