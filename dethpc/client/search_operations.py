"""What a search method of the user's own wants: operations, in Python and on the wire."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from typing import Any, Mapping

from dethpc.client.session import Json


class ExitedReason(enum.Enum):
    """Why a trial ended before its search method closed it."""

    ERRORED = "EXITED_REASON_UNSPECIFIED"
    USER_CANCELED = "EXITED_REASON_USER_REQUESTED_STOP"
    INVALID_HP = "EXITED_REASON_INVALID_HP"


class Operation:
    """Something that the search method wants."""

    def to_wire(self) -> Json:
        raise NotImplementedError


@dataclass(frozen=True)
class Create(Operation):
    """A new trial with these hyperparameters, known by ``request_id``. It trains once it has something to validate after.

    ``checkpoint`` is for code that passes None: raises ValueError for another.
    """

    request_id: uuid.UUID
    hparams: Mapping[str, Any]
    checkpoint: None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            raise ValueError(
                "Create(checkpoint=...) is not supported: a trial of a custom search starts from scratch; "
                "name the checkpoint in a hyperparameter and restore it in the training code"
            )

    def to_wire(self) -> Json:
        return {"createTrial": {"requestId": str(self.request_id), "hyperparams": dict(self.hparams)}}


@dataclass(frozen=True)
class ValidateAfter(Operation):
    """Train the trial until ``length`` in all, in the unit of ``searcher.unit``, then report its metric."""

    request_id: uuid.UUID
    length: int

    def to_wire(self) -> Json:
        return {"trialOperation": {"validateAfter": {"requestId": str(self.request_id), "length": str(self.length)}}}


@dataclass(frozen=True)
class Close(Operation):
    """The trial is done."""

    request_id: uuid.UUID

    def to_wire(self) -> Json:
        return {"closeTrial": {"requestId": str(self.request_id)}}


@dataclass(frozen=True)
class Progress(Operation):
    """How far the search is, between 0 and 1. The runner sends ``SearchMethod.progress`` by itself."""

    progress: float

    def to_wire(self) -> Json:
        return {"setSearcherProgress": {"progress": self.progress}}


@dataclass(frozen=True)
class Shutdown(Operation):
    """The search creates no more trials; the experiment ends when its last trial has.

    With ``cancel`` or ``failure`` it ends at once as canceled or with an error, and open trials save what they have.
    """

    cancel: bool = False
    failure: bool = False

    def to_wire(self) -> Json:
        return {"shutDown": {"cancel": self.cancel, "failure": self.failure}}
