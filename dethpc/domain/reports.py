"""What a run reports of its training: one report is one line of its attempt's journal."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class ReportKind(str, Enum):
    """Every kind of report there is. docs/run-directory.md lists them too."""

    METRICS = "metrics"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_DELETED = "checkpoint_deleted"
    SEARCHER_OP = "searcher_op"  # an operation of the search is complete
    EARLY_EXIT = "early_exit"  # the training says why it ends before its time
    ACK = "ack"  # the training knows that it should stop
    STATUS = "status"  # what the training says that it is doing
    RUN_METADATA = "run_metadata"
    ALERT = "alert"  # for people to read


_DURABLE = frozenset(
    {
        ReportKind.CHECKPOINT,
        ReportKind.CHECKPOINT_DELETED,
        ReportKind.SEARCHER_OP,
        ReportKind.EARLY_EXIT,
        ReportKind.ACK,
    }
)


class Report(NamedTuple):
    """``seq`` counts from 1 within the attempt; ``at`` is in seconds since the epoch; ``data`` holds the kind's own fields.

    ``kind`` is a ``ReportKind``, or a word that only a later release knows: who reads reports passes over those.
    """

    seq: int
    at: float
    kind: str
    data: dict[str, Any]

    @property
    def durable(self) -> bool:
        """Whether the report has to be on disk before the training goes on: decisions follow from it."""
        return self.kind in _DURABLE or (self.kind == ReportKind.METRICS and self.data.get("group") == "validation")
