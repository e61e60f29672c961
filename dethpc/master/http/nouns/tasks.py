"""Tasks: what has slots now, and the attempts of one task."""

from __future__ import annotations

from typing import Any

from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.errors import NotFound
from dethpc.master.http.access import AnyPrincipal, Owner, Reading, TheInstallation, TheStore, may_see_experiment
from dethpc.master.http.auth import Principal
from dethpc.master.http.models import time, time_or_none
from dethpc.master.http.nouns.logs import Filtered, fields, stream
from dethpc.master.http.nouns.trials import visible
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import task as wire
from dethpc.state import queries

router = new_router(prefix="/api/v1/tasks", tags=["tasks"])
older = new_router(tags=["tasks"])


def _task(connection: Connection, who: Principal, task_id: str) -> facts.Task:
    """Raises: NotFound, also where its experiment was deleted, and Forbidden."""
    task = queries.task(connection, task_id)
    if task.trial_id is not None:
        queries.trial(connection, task.trial_id)
    may_see_experiment(who, task.experiment_id)
    return task


def _trial(connection: Connection, who: Principal, task_id: str) -> facts.Trial:
    """Raises: NotFound, Forbidden."""
    trial_id = _task(connection, who, task_id).trial_id
    if trial_id is None:
        raise NotFound(f"task {task_id} has no trial")
    return visible(connection, who, trial_id)


@router.get("")
def tasks(connection: Reading, who: Owner) -> wire.Tasks:
    """Every run that has not ended."""
    live = queries.live_runs(connection)
    names = queries.names_of_experiments(connection, (run.experiment_id for run, _ in live if run.experiment_id))
    summaries = [wire.AllocationSummary.of(run, task, names.get(run.experiment_id or 0, "")) for run, task in live]
    return wire.Tasks(allocation_id_to_summary={summary.allocation_id: summary for summary in summaries})


@older.get("/tasks")
def tasks_as_before(connection: Reading, who: Owner) -> dict[str, Any]:
    """The same as it was before API v1, which scripts still poll: by allocation, with names in snake_case."""
    found = {id: summary.model_dump() for id, summary in tasks(connection, who).allocation_id_to_summary.items()}
    for summary in found.values():
        for resources in summary["resources"]:
            of_nodes = resources["agent_devices"]
            resources["agent_devices"] = {node: held["devices"] for node, held in of_nodes.items()}
    return found


@router.get("/count")
def count(who: Owner) -> wire.TaskCount:
    return wire.TaskCount()


@router.get("/{task_id}")
def get_task(task_id: str, connection: Reading, who: AnyPrincipal) -> wire.TaskAnswer:
    fact = _task(connection, who, task_id)
    runs = {run.id: run for run in queries.runs_of_task(connection, task_id)}
    attempts = queries.attempts_of_task(connection, task_id)
    # The newest first, for clients look at the first.
    attempts.sort(key=lambda attempt: (runs[attempt.run_id].number, attempt.number), reverse=True)
    task = wire.Task(
        task_id=task_id,
        task_type=wire.type_of(fact),
        allocations=[wire.Allocation.of(attempt, runs[attempt.run_id]) for attempt in attempts],
        start_time=time(fact.created_at),
        end_time=time_or_none(fact.ended_at),
    )
    return wire.TaskAnswer(task=task)


@router.get("/{task_id}/logs")
def task_logs(
    task_id: str,
    installation: TheInstallation,
    store: TheStore,
    connection: Reading,
    who: AnyPrincipal,
    asked: Filtered,
) -> StreamingResponse:
    return stream(installation, store, _trial(connection, who, task_id).id, task_id, asked)


@router.get("/{task_id}/logs/fields")
def task_log_fields(
    task_id: str,
    installation: TheInstallation,
    store: TheStore,
    connection: Reading,
    who: AnyPrincipal,
    follow: bool = False,
) -> StreamingResponse:
    return fields(installation, store, _trial(connection, who, task_id).id, follow=follow)
