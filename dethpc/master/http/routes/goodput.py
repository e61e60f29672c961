"""Where slots went: useful training, lost training, overhead, waiting."""

from __future__ import annotations

import time as clock
from typing import Annotated

from fastapi import APIRouter, Query

from dethpc.insight.goodput import Goodput, of_run
from dethpc.master.http.routes.access import Owner, Reading
from dethpc.master.http.wire.base import time
from dethpc.master.http.wire.goodput import ExperimentGoodput, PoolsGoodput, PoolSlots, Slots, TrialGoodput, TrialSlots
from dethpc.state import queries

router = APIRouter(prefix="/api/v1", tags=["goodput"])


@router.get("/experiments/{experiment_id}/goodput")
def of_experiment(
    experiment_id: int,
    connection: Reading,
    who: Owner,
    trials: Annotated[bool, Query(description="Include each trial's.")] = True,
) -> ExperimentGoodput:
    queries.experiment(connection, experiment_id)
    now, total, by_trial = clock.time(), Goodput(), dict[int, Goodput]()
    trial_of = queries.trials_of_tasks(connection, experiment_id)
    for run, attempts in queries.runs_with_attempts(connection, experiment_id=experiment_id):
        found = of_run(run, attempts, now)
        total.add(found)
        by_trial.setdefault(trial_of[run.task_id], Goodput()).add(found)
    told = [TrialSlots(trial_id=id, **Slots.of(found).model_dump()) for id, found in by_trial.items()] if trials else []
    return ExperimentGoodput(experiment_id=experiment_id, total=Slots.of(total), trials=told)


@router.get("/trials/{trial_id}/goodput")
def of_trial(trial_id: int, connection: Reading, who: Owner) -> TrialGoodput:
    queries.trial(connection, trial_id)
    now, total = clock.time(), Goodput()
    for run, attempts in queries.runs_with_attempts(connection, trial_id=trial_id):
        total.add(of_run(run, attempts, now))
    return TrialGoodput(trial_id=trial_id, total=Slots.of(total))


@router.get("/resource-pools/goodput")
def of_pools(
    connection: Reading,
    who: Owner,
    days: Annotated[float, Query(gt=0, description="Count runs of the last N days.")] = 30,
) -> PoolsGoodput:
    now = clock.time()
    pools: dict[str, Goodput] = {}
    for run, attempts in queries.runs_with_attempts(connection, since=now - days * 86400):
        pools.setdefault(run.pool, Goodput()).add(of_run(run, attempts, now))
    told = [PoolSlots(resource_pool=name, **Slots.of(found).model_dump()) for name, found in sorted(pools.items())]
    return PoolsGoodput(since=time(now - days * 86400), pools=told)
