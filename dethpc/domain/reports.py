"""What a run reports of its training: one report is one line of its attempt's journal."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, Callable, NamedTuple


class ReportKind(str, Enum):
    """Every kind of report there is. docs/run-directory.md lists them too."""

    METRICS = "metrics"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_WAITING = "checkpoint_waiting"  # it is whole where it was made, and its storage is away
    CHECKPOINT_DELETED = "checkpoint_deleted"
    CHECKPOINT_DAMAGED = "checkpoint_damaged"  # it failed its checks when it was restored
    SEARCHER_OP = "searcher_op"  # an operation of the search is complete
    EARLY_EXIT = "early_exit"  # the training says why it ends before its time
    ACK = "ack"  # the training knows that it should stop
    STATUS = "status"  # what the training says that it is doing
    RUN_METADATA = "run_metadata"
    ALERT = "alert"  # for people to read


NAMES_ONE = frozenset({ReportKind.CHECKPOINT, ReportKind.CHECKPOINT_WAITING})
"""Of a checkpoint of the trial's own, under a name that may be another's."""

_DURABLE = frozenset(
    {
        ReportKind.CHECKPOINT,
        ReportKind.CHECKPOINT_DELETED,
        ReportKind.CHECKPOINT_DAMAGED,
        ReportKind.SEARCHER_OP,
        ReportKind.EARLY_EXIT,
        ReportKind.ACK,
    }
)


STORAGE_AWAY = "STORAGE_AWAY: "
"""How the reason of an early exit begins that is no fault of the training: its checkpoint storage does not answer."""


WOULD_FAIL_AGAIN = "WOULD_FAIL_AGAIN: "
"""How the reason of an early exit begins after which the training would only fail in the same way again."""


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


MOST_METRICS = 20_000
"""How many metrics a report may have: each has a summary that is kept."""

MOST_BYTES = 2**50
"""That the files of a checkpoint may have together, a PiB: sums over thousands of them still fit into a database's whole number."""

MOST_STEPS = 2**63 - 1
"""How many steps can have been completed at most: what a database's integer holds."""


MOST_LEVELS = 100
"""How deep lists and mappings may lie in each other, in what somebody reports, sends or configures. What reads or writes JSON gives
up somewhere beyond 250, and not everywhere at the same depth: what one part of the master kept, another could not show."""


def too_deep(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Whether a JSON value has more than ``levels``."""
    if not value or not isinstance(value, _NESTS):
        return False
    if not levels:
        return True
    for item in value.values() if isinstance(value, dict) else value:
        if type(item) not in _FLAT and too_deep(item, levels - 1):
            return True
    return False


_NESTS = (dict, list, tuple)
_FLAT = frozenset((float, int, str, bool, type(None)))  # nearly all values: no more is asked of them


def fault(report: Report) -> str:
    """What is wrong with the report, in words; empty when it can be taken in.

    A report whose line is whole may still hold what no database takes, or be of a shape that this release does not know. It keeps
    its number, and counts for nothing.
    """
    return fault_of(report.kind, report.data) if math.isfinite(report.at) else f"its time is {report.at}"


def fault_of(kind: str, data: dict[str, Any]) -> str:
    """The same of what is about to be reported."""
    if too_deep(data):
        return f"its values lie more than {MOST_LEVELS} levels deep"
    check = _FAULTS.get(kind)
    return check(data) if check is not None else ""


def _of_metrics(data: dict[str, Any]) -> str:
    if type(data.get("metrics")) is not dict:
        return "its metrics are no mapping of names to values"
    if len(data["metrics"]) > MOST_METRICS:
        return f"it has {len(data['metrics'])} metrics, and {MOST_METRICS} are allowed"
    if not _is_text(data.get("group")):
        return "its group of metrics is no text"
    return _of_steps(data.get("steps_completed"))


def _of_checkpoint(data: dict[str, Any]) -> str:
    resources = data.get("resources") or {}
    if not _is_name(data.get("uuid")):
        return "it names no checkpoint"
    for name in ("metadata", "resources", "storage"):
        if data.get(name) and type(data[name]) is not dict:
            return f"its {name} are no mapping"
    if not _is_text(data.get("spool", "")):
        return "the folder that the checkpoint waits in is no text"
    if not all(type(size) is int and size >= 0 for size in resources.values()):
        return "a size among its resources is no number of bytes"
    if sum(resources.values()) > MOST_BYTES:
        return f"its files have more than {MOST_BYTES} bytes together"
    return _of_steps(data.get("steps_completed") or 0)


def _of_waiting(data: dict[str, Any]) -> str:
    return _of_checkpoint(data) or ("" if _is_text(data.get("why")) else "why the checkpoint waits is no text")


def _of_deletion(data: dict[str, Any]) -> str:
    if not _is_name(data.get("uuid")):
        return "it names no checkpoint"
    return "" if type(data.get("resources") or {}) is dict else "its resources are no mapping"


def _of_damage(data: dict[str, Any]) -> str:
    if not _is_name(data.get("uuid")):
        return "it names no checkpoint"
    return "" if _is_text(data.get("why")) else "why the checkpoint is damaged is no text"


def _of_run_metadata(data: dict[str, Any]) -> str:
    return "" if type(data.get("metadata") or {}) is dict else "its metadata are no mapping"


def _of_text(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda data: "" if _is_text(str(data.get(name, ""))) else f"its {name} is no text"


def _of_steps(steps: object) -> str:
    if type(steps) is int and 0 <= steps <= MOST_STEPS:
        return ""
    return "its steps_completed is no whole number from 0 to 2**63 - 1"


def _is_name(value: object) -> bool:
    return _is_text(value) and 0 < len(str(value)) <= 255


def _is_text(value: object) -> bool:
    """Whether any database takes it: one half of a surrogate pair is no character, and PostgreSQL takes no NUL."""
    if type(value) is not str or "\0" in value:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_FAULTS: dict[str, Callable[[dict[str, Any]], str]] = {
    ReportKind.METRICS: _of_metrics,
    ReportKind.CHECKPOINT: _of_checkpoint,
    ReportKind.CHECKPOINT_WAITING: _of_waiting,
    ReportKind.CHECKPOINT_DELETED: _of_deletion,
    ReportKind.CHECKPOINT_DAMAGED: _of_damage,
    ReportKind.RUN_METADATA: _of_run_metadata,
    ReportKind.STATUS: _of_text("status"),
    ReportKind.EARLY_EXIT: _of_text("reason"),
}
