"""The states of a compute node."""

from __future__ import annotations

from enum import Enum


class NodeState(str, Enum):
    """A node as the scheduler sees it now. ``UNKNOWN`` is also what a scheduler says in a word of its own that is not known here.

    ``usable`` and ``gone`` are not each other's opposites: a draining node runs what it has and takes nothing more.
    """

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "allocated"
    COMPLETING = "completing"  # a job's last processes are ending: its slots are free in a moment
    PLANNED = "planned"  # kept for a job with a higher priority
    RESERVED = "reserved"  # for those whose pool has the reservation
    DRAINING = "draining"
    FAILING = "failing"  # draining, as it is about to fail
    DRAINED = "drained"
    DOWN = "down"
    FAIL = "fail"
    MAINTENANCE = "maint"
    REBOOTING = "rebooting"
    POWERED_DOWN = "powered_down"
    POWERING_UP = "powering_up"
    FUTURE = "future"  # configured, not there yet
    INVALID = "inval"  # it has less than the configuration says
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value

    @property
    def usable(self) -> bool:
        """Whether jobs can start on it now, if it has room."""
        return self in _USABLE

    @property
    def gone(self) -> bool:
        """Whether it runs no jobs and can start none: its slots do not count."""
        return not self.usable and self not in _LEAVING


_USABLE = frozenset(
    {
        NodeState.IDLE,
        NodeState.MIXED,
        NodeState.ALLOCATED,
        NodeState.COMPLETING,
        NodeState.PLANNED,
        NodeState.RESERVED,
    }
)
_LEAVING = frozenset({NodeState.DRAINING, NodeState.FAILING})
