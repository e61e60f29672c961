"""Routes about how long the logs of trials are kept, in the place of what their configurations say."""

from __future__ import annotations

import time as clock
from typing import Annotated, Any

from pydantic import Field

from dethpc.domain.records import LogDays
from dethpc.errors import Refused
from dethpc.master.durable.records import Records
from dethpc.master.files.retention import DAY
from dethpc.master.http.access import Editor, Owner, TheRecords, TheRetention, TheStore, Viewer
from dethpc.master.http.models import Wire
from dethpc.master.http.nouns.control import Chosen, Result, Results, error_of
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.store import ReadStore


class RetentionRequest(Wire):
    """-1: for ever."""

    num_days: Annotated[int, Field(ge=-1, le=32767)]


class RemainingDays(Wire):
    """-1: they are kept for ever."""

    remaining_days: int


class Removed(Wire):
    removed_count: str


router = new_router(prefix="/api/v1", tags=["experiments"])


@router.put("/experiments/{experiment_id}/retain_logs")
def retain_of_experiment(
    experiment_id: int,
    request: RetentionRequest,
    store: TheStore,
    records: TheRecords,
    retention: TheRetention,
    who: Editor,
) -> dict[str, Any]:
    """Of all its trials, whatever was set for single ones."""
    _retain(experiment_id, request.num_days, store, records)
    retention.look_again()
    return {}


@router.put("/projects/{project_id}/experiments/retain_logs")
def retain_of_many(chosen: Chosen, store: TheStore, records: TheRecords, retention: TheRetention) -> Results:
    days = chosen.num_days
    if days is None:
        raise Refused("numDays is missing: for how many days logs are kept, -1 for ever")
    results = [Result(id=id, error=error_of(_retain, id, days, store, records)) for id in chosen.ids]
    retention.look_again()
    return Results(results=results)


def _retain(experiment_id: int, days: int, store: ReadStore, records: Records) -> None:
    with store.read() as connection:
        queries.experiment(connection, experiment_id)
        trial_ids = {trial.id for trial in queries.trials_of_experiment(connection, experiment_id)}
    records.put(LogDays("experiment", experiment_id, days))
    for row in records.find(LogDays, noun="trial"):
        if row.id in trial_ids:
            records.drop(row)


@router.put("/trials/{trial_id}/retain_logs")
def retain_of_trial(
    trial_id: int, request: RetentionRequest, store: TheStore, records: TheRecords, retention: TheRetention, who: Editor
) -> dict[str, Any]:
    with store.read() as connection:
        queries.trial(connection, trial_id)
    records.put(LogDays("trial", trial_id, request.num_days))
    retention.look_again()
    return {}


@router.get("/trials/{trial_id}/remaining_log_retention_days")
def remaining(trial_id: int, store: TheStore, retention: TheRetention, who: Viewer) -> RemainingDays:
    """From now, or from its end where it has not ended."""
    with store.read() as connection:
        trial = queries.trial(connection, trial_id)
    days = retention.days_of(trial)
    if days >= 0 and trial.ended_at is not None:
        days = max(0, int(days - (clock.time() - trial.ended_at) / DAY))
    return RemainingDays(remaining_days=days)


@router.post("/cleanup_logs")
def cleanup(retention: TheRetention, who: Owner) -> Removed:
    """Delete now what is due, which the master does each hour by itself; the answer says of how many trials."""
    return Removed(removed_count=str(retention.delete_all_due()))
