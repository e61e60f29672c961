"""Where slots went: what of their time was training that counts, training that was lost, and none at all.

    allocated = useful + lost + overhead          for each attempt, in slot-seconds

An attempt's time is cut at three points: when training began, until when it counts, and when it was last heard of. docs/goodput.md
has the definitions in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dethpc.domain.states import AttemptState, End


class RunTimes(Protocol):
    """What a run has of ``facts.Run``."""

    @property
    def slots(self) -> int: ...
    @property
    def created_at(self) -> float: ...
    @property
    def ended_at(self) -> float | None: ...


class AttemptTimes(Protocol):
    """What an attempt has of ``facts.Attempt``."""

    @property
    def state(self) -> AttemptState: ...
    @property
    def started_at(self) -> float: ...
    @property
    def ended_at(self) -> float | None: ...
    @property
    def end(self) -> End | None: ...
    @property
    def resumed_steps(self) -> int: ...
    @property
    def first_at(self) -> float | None: ...
    @property
    def first_steps(self) -> int | None: ...
    @property
    def last_at(self) -> float | None: ...
    @property
    def last_steps(self) -> int | None: ...
    @property
    def saved_at(self) -> float | None: ...
    @property
    def saving(self) -> float | None: ...
    @property
    def kept_at(self) -> float | None: ...


_CLEAN = frozenset({End.COMPLETED, End.STOPPED, End.WAITING, End.INVALID_HP})


@dataclass(slots=True)
class Goodput:
    """Slot-seconds. ``waiting`` is beside ``allocated``: nobody held the slots meanwhile."""

    useful: float = 0.0
    lost: float = 0.0
    overhead: float = 0.0
    waiting: float = 0.0

    @property
    def allocated(self) -> float:
        return self.useful + self.lost + self.overhead

    def add(self, other: Goodput) -> None:
        self.useful += other.useful
        self.lost += other.lost
        self.overhead += other.overhead
        self.waiting += other.waiting


def of_attempt(attempt: AttemptTimes, slots: int, now: float) -> Goodput:
    """Where the slots of one attempt went, as things stand: what was trained since its last checkpoint counts while it runs, and
    is lost once a later attempt has to train it again. ``slots``: of the run; ``now`` ends an attempt that still runs."""
    at = cuts(attempt, now)
    saving = saved(attempt, at)
    useful, lost = at.counts - at.trains - saving, at.heard - at.counts
    overhead = at.end - at.heard + at.trains - at.begin + saving
    return Goodput(useful=slots * useful, lost=slots * lost, overhead=slots * overhead)


class Cuts(NamedTuple):
    """The times between which an attempt does something else: it starts until ``trains``, trains what counts until ``counts``, and
    what is lost until ``heard``, and ends until ``end``."""

    begin: float
    trains: float
    counts: float
    heard: float
    end: float


def cuts(attempt: AttemptTimes, now: float) -> Cuts:
    """``now`` ends an attempt that still runs."""
    begin = attempt.started_at
    running = attempt.state is AttemptState.RUNNING
    end = max(begin, now if running or attempt.ended_at is None else attempt.ended_at)
    if attempt.first_at is None or attempt.last_at is None:
        # It reported nothing: only its end can say whether it trained.
        return Cuts(begin, begin if attempt.end is End.COMPLETED else end, end, end, end)
    from_ = _within(_training_began(attempt), begin, end)
    heard = end if running or not _left_cleanly(attempt) else _within(attempt.last_at, from_, end)
    return Cuts(begin, from_, _within(_counts_until(attempt, running, heard, begin), from_, heard), heard, end)


def saved(attempt: AttemptTimes, at: Cuts) -> float:
    """Seconds for which training that counts stood still at checkpoints; those of lost training are not told from the others."""
    return 0.0 if attempt.first_at is None else min(attempt.saving or 0.0, at.counts - at.trains)


def _left_cleanly(attempt: AttemptTimes) -> bool:
    """Whether nothing was trained after the last report: it ended of itself, or saved what it had and left."""
    saved = attempt.end in (End.PREEMPTED, End.TIMEOUT) and attempt.saved_at == attempt.last_at
    return saved or attempt.end in _CLEAN


def _training_began(attempt: AttemptTimes) -> float:
    """Before its first report, by as long as the steps of that report took at the pace of the later ones."""
    assert attempt.first_at is not None and attempt.last_at is not None
    before = (attempt.first_steps or 0) - attempt.resumed_steps
    after = (attempt.last_steps or 0) - (attempt.first_steps or 0)
    if before <= 0:
        return attempt.first_at
    if after <= 0:
        return attempt.started_at  # one report only: nobody knows the pace
    return attempt.first_at - before * (attempt.last_at - attempt.first_at) / after


def _counts_until(attempt: AttemptTimes, running: bool, heard: float, begin: float) -> float:
    if attempt.kept_at is not None:
        return attempt.kept_at
    if running or attempt.end in (End.COMPLETED, End.INVALID_HP):
        return heard
    return attempt.saved_at if attempt.saved_at is not None else begin


def _within(at: float, low: float, high: float) -> float:
    return min(max(at, low), high)


def of_run(run: RunTimes, attempts: Sequence[AttemptTimes], now: float) -> Goodput:
    """A run's attempts in order, and its waits: from the moment when the master wants it until it starts, and between its starts.

    What waits in the master's own queue is no run yet and does not count. ``now`` is for a run that has not ended.
    """
    now = now if run.ended_at is None else run.ended_at
    total = Goodput()
    since: float | None = run.created_at
    for attempt in attempts:
        if since is not None:
            total.waiting += run.slots * max(0.0, attempt.started_at - since)
        total.add(of_attempt(attempt, run.slots, now))
        since = attempt.ended_at if attempt.state is AttemptState.ENDED else None
    if since is not None and (run.ended_at is None or not attempts):
        total.waiting += run.slots * max(0.0, now - since)
    return total
