"""A job of the queue, as far as the queue goes: what wants a run, what has one, what it has been served."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

from dethpc.domain.facts import Experiment, Row, Run, Task
from dethpc.engine.queue_index import Place


class RunPlace(NamedTuple):
    """What the queue gives a new run. ``nice``: how far it steps back in the scheduler's queue."""

    pool: str
    at: float
    nice: int = 0


@dataclass(slots=True)
class Job(ABC):
    """A base class and not only a protocol: what is counted from rows is counted in one way for every kind of job.

    A member of the job is what wants runs, by its number: a trial of an experiment, by its index; 0 of a task.
    """

    waiting: list[int] = field(init=False, default_factory=list)  # members, sorted, that want a run and have none
    live: dict[int, Run] = field(init=False, default_factory=dict)  # member -> its run that has not ended
    live_slots: int = field(init=False, default=0)  # that its live runs hold or have asked for
    running_slots: int = field(init=False, default=0)  # of those that run
    started: int = field(init=False, default=0)  # sum over those of slots times the millisecond of the start
    place: Place | None = field(init=False, default=None)  # in the queue, while it wants another run

    @property
    @abstractmethod
    def entry(self) -> Experiment | Task:
        """The row that says where in the queue it is: its pool, priority, position, weight, and what it was served."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Of one run."""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many more runs it may have now."""

    @property
    @abstractmethod
    def queued(self) -> bool:
        """Whether it takes part in the queue: it is active, and its runs are submitted by the master."""

    @abstractmethod
    def submission(self, member: int, place: RunPlace) -> list[Row]:
        """The rows that make a new run for ``member``."""

    @property
    def id(self) -> str:
        return self.entry.queue_id

    def served(self, at: float) -> float:
        """Slot-seconds over weight that its runs have had until then."""
        return self.entry.served + (self.running_slots * at - self.started / 1000) / self.entry.weight
