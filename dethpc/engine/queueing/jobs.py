"""The jobs of the queue, experiments and tasks: what of them wants a run, what has one, what they have been served."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Experiment, Row, Run, Task, Trial
from dethpc.domain.ids import run_id, task_id
from dethpc.domain.states import RunState, State
from dethpc.engine.queueing.pools import Kind
from dethpc.engine.queueing.queue_index import Place, QueueKey, key
from dethpc.searcher.base import Exit, Searcher


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
    _key: QueueKey | None = field(init=False, default=None)
    _keyed: tuple[Experiment | Task | None, str] = field(init=False, default=(None, ""))

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
    def allowance(self) -> int:
        """How many more runs it may have now."""

    @property
    @abstractmethod
    def queued(self) -> bool:
        """Whether it takes part in the queue: it is active, and its runs are submitted by the master."""

    @abstractmethod
    def submission(self, member: int, place: RunPlace) -> list[Row]:
        """The rows that make a new run for ``member``."""

    @abstractmethod
    def wait(self, member: int) -> bool:
        """Put the member among those that wait, or take it out, as rows say now. Returns whether that changed anything."""

    def next_place(self, kind: Kind) -> Place | None:
        """Its place in the queue of its pool, of this kind, while it wants another run; the one it has where that is right."""
        if not self.queued or self.allowance <= 0:
            return None
        pool, slots, key, place = self.entry.pool, self.slots, self.key(kind), self.place
        if place is not None and place.key is key and place.slots == slots and place.pool == pool:
            return place
        return Place(pool, slots, key)

    @property
    def id(self) -> str:
        return self.entry.queue_id

    def key(self, kind: Kind) -> QueueKey:
        """Of its row, in a pool of this kind; made again only when the row is another."""
        entry = self.entry
        if self._key is None or self._keyed[0] is not entry or self._keyed[1] != kind:
            self._key, self._keyed = key(entry, kind), (entry, kind)
        return self._key

    def served(self, at: float) -> float:
        """Slot-seconds over weight that its runs have had until then."""
        entry = self.entry
        return entry.served + (self.running_slots * at - self.started / 1000) / entry.weight


@dataclass(slots=True)
class ExperimentState(Job):
    """One experiment with everything that decisions about it need. What wants a run are its trials, by their index."""

    row: Experiment
    config: ExperimentConfig  # the row's, parsed once
    searcher: Searcher
    trials: list[Trial] = field(default_factory=list)  # by index
    open: set[int] = field(default_factory=set)  # indexes of trials that have not ended
    notes: int = 0
    good_nodes: set[str] = field(default_factory=set)  # nodes on which some trial of it has trained

    @property
    def entry(self) -> Experiment:
        return self.row

    @property
    def slots(self) -> int:
        return self.row.slots_per_trial

    @property
    def allowance(self) -> int:
        """How many more runs ``max_slots`` allows, and the first trial where the others wait for it."""
        row, waiting = self.row, len(self.waiting)
        if self.held:
            waiting = int(self.waiting[:1] == [0])
        if row.max_slots is None or row.slots_per_trial == 0:
            return waiting
        return min(waiting, max(0, row.max_slots - self.live_slots) // row.slots_per_trial)

    @property
    def held(self) -> bool:
        """Whether the first trial alone may have another run."""
        return bool(self.trials) and self.trials[0].state is State.ACTIVE and holds_others(self.trials[0])

    @property
    def queued(self) -> bool:
        return self.row.state is State.ACTIVE and self.row.kind.submitted

    def wait(self, member: int) -> bool:
        trial, waiting = self.trials[member], self.waiting
        waits = (
            trial.state is State.ACTIVE
            and member not in self.live
            and trial.not_before is None
            and not waits_for_searcher(trial)
        )
        i = bisect.bisect_left(waiting, member)
        listed = i < len(waiting) and waiting[i] == member
        if waits and not listed:
            waiting.insert(i, member)
        elif listed and not waits:
            del waiting[i]
        return waits != listed

    def submission(self, member: int, place: RunPlace) -> list[Row]:
        row, trial = self.row, self.trials[member]
        number = trial.runs + 1
        run = Run(
            id=run_id(task_id(row.id, trial.id), number),
            experiment_id=row.id,
            task_id=task_id(row.id, trial.id),
            number=number,
            state=RunState.SUBMITTING,
            created_at=place.at,
            slots=row.slots_per_trial,
            pool=place.pool,
            nice=place.nice,
        )
        return [replace(trial, runs=number), run]


@dataclass(slots=True)
class TaskState(Job):
    """A task without a trial. It has one run at a time, as its member 0."""

    row: Task

    @property
    def entry(self) -> Task:
        return self.row

    @property
    def slots(self) -> int:
        return self.row.slots

    @property
    def allowance(self) -> int:
        return len(self.waiting)

    @property
    def queued(self) -> bool:
        return self.row.state is State.ACTIVE and self.row.kind.submitted

    def wait(self, member: int) -> bool:
        before, self.waiting = self.waiting, [0] if self.queued and not self.live else []
        return before != self.waiting

    def submission(self, member: int, place: RunPlace) -> list[Row]:
        row = replace(self.row, runs=self.row.runs + 1)
        run = Run(
            id=run_id(row.id, row.runs),
            experiment_id=None,
            task_id=row.id,
            number=row.runs,
            state=RunState.SUBMITTING,
            created_at=place.at,
            slots=row.slots,
            pool=place.pool,
            nice=place.nice,
        )
        return [row, run]


def waits_for_searcher(trial: Trial) -> bool:
    """Whether the trial waits for its searcher, which is none of the user's pausing and activating."""
    return bool(trial.search.get("waits"))


def holds_others(trial: Trial) -> bool:
    """Whether the other trials of its experiment wait until it, or one of them, has reported something."""
    return bool(trial.search.get("holds"))


def exit_of(trial: Trial) -> Exit:
    """How a trial that ended left the search. Derived from the row alone, so that a fold gives the same."""
    if trial.early_exit.endswith("INVALID_HP"):
        return Exit.INVALID_HP
    if trial.state is State.ERROR:
        return Exit.ERRORED
    if trial.state is State.CANCELED:
        return Exit.CANCELED
    return Exit.COMPLETED
