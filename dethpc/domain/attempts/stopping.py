"""How an attempt is asked to stop: ``stop.json``, and the reasons that programs tell apart."""

from __future__ import annotations

from enum import Enum
from typing import Any, Mapping, NamedTuple, Optional


class StopReason(str, Enum):
    """Why an attempt was asked to stop, or stopped unasked, where a decision follows from it. The master has other reasons,
    in words for people: a pause, the search's decision."""

    PREEMPTED = "preempted"  # the scheduler takes the slots, or somebody cancels the job
    TIME_LIMIT = "time_limit"  # the job's time is nearly up
    INTERRUPTED = "interrupted"  # somebody pressed Ctrl-C
    NODE_LOST = "node_lost"  # nobody asked: another node of the attempt is gone

    def __str__(self) -> str:
        return self.value


class StopRequest(NamedTuple):
    """The content of ``stop.json``: the attempt should save a checkpoint and end.

    ``reason``: a ``StopReason`` or the master's own words. ``at`` and ``deadline`` in seconds since the epoch: when it was asked,
    and when it is killed; None: nobody knows.
    """

    reason: str
    at: float
    deadline: Optional[float] = None

    def to_json(self) -> dict[str, Any]:
        return {"reason": str(self.reason), "at": self.at, "deadline": self.deadline}

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> StopRequest:
        """Fields that are missing, or are not what they should be, count as not given: an attempt is asked to stop by the file's
        being there."""
        deadline = obj.get("deadline")
        return cls(str(obj.get("reason") or ""), _seconds(obj.get("at")) or 0.0, _seconds(deadline))


def _seconds(value: object) -> Optional[float]:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
