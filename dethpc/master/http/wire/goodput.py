"""Where slots went, on the wire. Ours; Determined has nothing like it."""

from __future__ import annotations

from typing import Literal

from dethpc.domain.goodput import Goodput
from dethpc.master.http.models import Pagination, Wire


class Span(Wire):
    """What a while was spent on."""

    kind: Literal["waiting", "starting", "training", "lost", "ending"]
    start_time: str
    end_time: str


class TimelineAttempt(Wire):
    """``attempt``: None for a run that has not started. ``saving``: seconds of its training for which that stood still. Steps as
    of the checkpoint that it started from and of its last report; None: it reported none."""

    run: str
    job_id: str | None
    attempt: int | None
    start_time: str | None
    end_time: str | None
    from_steps: int
    to_steps: int | None
    nodes: list[str]
    end: str
    reason: str
    saving: float
    spans: list[Span]


class Timeline(Wire):
    """What became of a trial's time, its last attempts; ``more``: earlier ones."""

    attempts: list[TimelineAttempt]
    more: int


class Slots(Wire):
    """Slot-seconds; ``allocated`` is the sum of ``useful``, ``lost`` and ``overhead``. ``goodput``: the useful part of it."""

    useful: float
    lost: float
    overhead: float
    allocated: float
    waiting: float
    goodput: float | None  # None: nothing was allocated yet

    @classmethod
    def of(cls, found: Goodput) -> Slots:
        return cls(
            useful=found.useful,
            lost=found.lost,
            overhead=found.overhead,
            allocated=found.allocated,
            waiting=found.waiting,
            goodput=found.useful / found.allocated if found.allocated > 0 else None,
        )


class TrialSlots(Slots):
    trial_id: int


class ExperimentGoodput(Wire):
    experiment_id: int
    total: Slots
    trials: list[TrialSlots]
    pagination: Pagination  # of all its trials; those that had no run are not in ``trials``


class TrialGoodput(Wire):
    trial_id: int
    total: Slots


class PoolSlots(Slots):
    resource_pool: str


class PoolsGoodput(Wire):
    since: str
    pools: list[PoolSlots]
