"""Routes of goodput: how slot time divides into useful training, lost training, overhead and waiting."""

from __future__ import annotations

import time as clock
from collections import defaultdict
from typing import Annotated, Literal

from fastapi import Query

from dethpc.domain.facts import Attempt, Run, Trial
from dethpc.domain.goodput import Goodput
from dethpc.insight.timeline import Spent, end_for_people, of_attempts
from dethpc.master.http.access import Limit, Offset, Reading, Viewer, ViewerSomewhere
from dethpc.master.http.models import Pagination, Wire, page, time
from dethpc.master.http.router import new_router
from dethpc.state import queries


class Span(Wire):
    """What a while was spent on."""

    kind: Literal["waiting", "starting", "training", "lost", "ending"]
    start_time: str
    end_time: str


class TimelineAttempt(Wire):
    """``attempt``: None for a run that has not started. ``saving``: seconds of its training for which that stood still. Steps as
    of the checkpoint that it started from and of its last report; None: it reported none. ``end``: ``COMPLETED`` also where the
    searcher stopped a trial that had trained to its full length."""

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
    def of(cls, goodput: Goodput) -> Slots:
        return cls(
            useful=goodput.useful,
            lost=goodput.lost,
            overhead=goodput.overhead,
            allocated=goodput.allocated,
            waiting=goodput.waiting,
            goodput=goodput.useful / goodput.allocated if goodput.allocated > 0 else None,
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


router = new_router(prefix="/api/v1", tags=["goodput"])

MOST_TRIALS = 1000
"""Of an answer to whom says no number."""


@router.get("/experiments/{experiment_id}/goodput")
def of_experiment(
    experiment_id: int,
    connection: Reading,
    who: Viewer,
    trials: Annotated[bool, Query(description="Include each trial's.")] = True,
    limit: Limit = MOST_TRIALS,
    offset: Offset = 0,
) -> ExperimentGoodput:
    """``trials`` are those of a page of all that had a run, by id; ``total`` is the whole experiment's."""
    queries.experiment(connection, experiment_id)
    now = clock.time()
    requested_page = page(offset, limit if trials else -2)
    by_trial, count, begin = queries.goodput_of_trials(connection, experiment_id, requested_page, now)
    total = Slots.of(queries.goodput_of_experiment(connection, experiment_id, now))
    return ExperimentGoodput(
        experiment_id=experiment_id,
        total=total,
        trials=[TrialSlots(trial_id=id, **vars(Slots.of(goodput))) for id, goodput in by_trial.items()],
        pagination=Pagination.of(
            count, begin, limit, min(count - begin, count if requested_page.limit is None else requested_page.limit)
        ),
    )


@router.get("/trials/{trial_id}/goodput")
def of_trial(trial_id: int, connection: Reading, who: Viewer) -> TrialGoodput:
    queries.trial(connection, trial_id)
    return TrialGoodput(trial_id=trial_id, total=Slots.of(queries.goodput_of_trial(connection, trial_id, clock.time())))


MOST_ATTEMPTS = 200


@router.get("/trials/{trial_id}/timeline")
def timeline(trial_id: int, connection: Reading, who: Viewer) -> Timeline:
    """Ours: when the trial waited, started, trained, trained what was lost, and ended."""
    trial = queries.trial(connection, trial_id)
    now, entries = clock.time(), list[TimelineAttempt]()
    attempts = defaultdict[str, list[Attempt]](list)
    for attempt in queries.attempts_of_trial(connection, trial_id):
        attempts[attempt.run_id].append(attempt)
    for run in queries.runs_of_trial(connection, trial_id):
        ordered = sorted(attempts[run.id], key=lambda one: one.number)
        entries += [_on_the_wire(trial, run, spent) for spent in of_attempts(run, ordered, now)]
    return Timeline(attempts=entries[-MOST_ATTEMPTS:], more=max(0, len(entries) - MOST_ATTEMPTS))


@router.get("/resource-pools/goodput")
def of_pools(
    connection: Reading,
    who: ViewerSomewhere,
    days: Annotated[float, Query(gt=0, description="Count runs of the last N days.")] = 30,
) -> PoolsGoodput:
    now = clock.time()
    pools = queries.goodput_of_pools(connection, now - days * 86400, now)
    pool_slots = [PoolSlots(resource_pool=name, **Slots.of(goodput).model_dump()) for name, goodput in pools.items()]
    return PoolsGoodput(since=time(now - days * 86400), pools=pool_slots)


def _on_the_wire(trial: Trial, run: Run, spent: Spent) -> TimelineAttempt:
    attempt = spent.attempt
    end = None if attempt is None else end_for_people(attempt.end, run, trial)
    return TimelineAttempt(
        run=run.id,
        job_id=run.scheduler_job_id,
        attempt=attempt.number if attempt else None,
        start_time=time(attempt.started_at) if attempt else None,
        end_time=time(attempt.ended_at) if attempt and attempt.ended_at is not None else None,
        from_steps=attempt.resumed_steps if attempt else 0,
        to_steps=attempt.last_steps if attempt else None,
        nodes=attempt.nodes if attempt else [],
        end=end.value if end else "",
        reason=attempt.reason if attempt else "",
        saving=spent.saving,
        spans=[Span(kind=kind, start_time=time(begin), end_time=time(end)) for kind, begin, end in spent.spans],
    )
