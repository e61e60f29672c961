"""Routes of tasks: those that hold slots now, and the attempts of one task."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.domain.ids import AttemptId
from dethpc.domain.secrets import masked
from dethpc.domain.states import AttemptState, RunState, State, TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.insight.reasons import of_run
from dethpc.master.http.access import (
    AnyPrincipal,
    Reading,
    TheInstallation,
    TheLauncher,
    TheStore,
    ViewerSomewhere,
    attempt_id,
    may_be_run,
    may_see_experiment,
)
from dethpc.master.http.auth import Principal
from dethpc.master.http.models import Wire, time, time_or_none
from dethpc.master.http.nouns.logs import Filtered, TaskLog, fields, stream
from dethpc.master.http.preemptions import Preemptions
from dethpc.master.http.router import new_router
from dethpc.master.installation import Installation
from dethpc.master.tasks.launching import shown
from dethpc.state import queries
from dethpc.state.queries import queue
from dethpc.state.store import ReadStore


def container_id(attempt: AttemptId, node: str) -> str:
    """One node's share of an attempt."""
    return f"{attempt}@{node}"


def name_of(task: facts.Task, experiment: str) -> str:
    """For people. ``experiment``: the name of the task's experiment, where it has one."""
    if task.trial_id is None:
        return task.name
    return f"Trial {task.trial_id} (Experiment {task.experiment_id}{': ' + experiment if experiment else ''})"


def type_of(task: facts.Task) -> str:
    """Determined's word for tasks of the kind; for kinds that it does not know: TASK_TYPE_GENERIC."""
    if task.kind.trains:
        return "TASK_TYPE_TRIAL"
    return "TASK_TYPE_GENERIC" if task.kind is TaskKind.IMAGE_PULL else f"TASK_TYPE_{task.kind.value}"


class Allocation(Wire):
    allocation_id: str
    task_id: str
    state: str
    slots: int
    start_time: str
    end_time: str | None
    is_ready: bool
    exit_reason: str | None
    status_code: int | None

    @classmethod
    def of(cls, attempt: facts.Attempt, run: facts.Run, *, ready: bool) -> Allocation:
        ended = attempt.state is AttemptState.ENDED
        return cls(
            allocation_id=str(AttemptId(attempt.run_id, attempt.number)),
            task_id=run.task_id,
            state="STATE_TERMINATED" if ended else "STATE_RUNNING",
            slots=run.slots,
            start_time=time(attempt.started_at),
            is_ready=ready,
            end_time=time_or_none(attempt.ended_at),
            exit_reason=(attempt.reason or (attempt.end.value if attempt.end else "")) if ended else None,
            status_code=run.exit_code if ended else None,
        )


class Task(Wire):
    """``task_state``, ``config`` (JSON), ``parent_id``, ``forked_from`` and ``no_pause``: of a generic task alone."""

    task_id: str
    task_type: str
    allocations: list[Allocation]
    start_time: str
    end_time: str | None
    task_state: str | None = None
    config: str | None = None
    parent_id: str | None = None
    forked_from: str | None = None
    no_pause: bool | None = None


def _of_generic(task: facts.Task, *, live: bool) -> dict[str, Any]:
    """What the answer has of a generic task alone."""
    if task.kind is not TaskKind.GENERIC:
        return {}
    settings = TaskSettings.of(task)
    paused = task.state is State.PAUSED
    state = "STOPPING_PAUSED" if paused and live else task.state.value.replace("STOPPING_KILLED", "STOPPING_CANCELED")
    return {
        "task_state": f"GENERIC_TASK_STATE_{state}",
        "config": json.dumps(masked(shown(task))),
        "parent_id": settings.parent_id or None,
        "forked_from": settings.forked_from or None,
        "no_pause": settings.no_pause,
    }


class TaskAnswer(Wire):
    task: Task


class AllocationAnswer(Wire):
    allocation: Allocation


class ResourcesSummary(Wire):
    resources_id: str
    resources_type: str
    allocation_id: str
    container_id: str
    agent_devices: dict[str, dict[str, list[str]]] = {}


class AllocationSummary(Wire):
    """A run that has not ended."""

    task_id: str
    allocation_id: str
    name: str
    registered_time: str
    resource_pool: str
    slots_needed: int
    resources: list[ResourcesSummary]
    scheduler_type: str
    priority: int | None = None
    proxy_ports: list[str] = []
    job_id: str | None  # ours: the scheduler's
    reason: str  # ours: why it is pending

    @classmethod
    def of(
        cls, run: facts.Run, task: facts.Task, experiment: str, priority: int | None, scheduler: str
    ) -> AllocationSummary:
        """``scheduler``: slurm or local; what Determined calls its own on nodes of its own is "priority"."""
        attempt = AttemptId(run.id, max(run.attempt, 0))
        nodes = run.nodes if run.state is RunState.RUNNING else []
        return cls(
            task_id=run.task_id,
            allocation_id=str(attempt),
            name=name_of(task, experiment),
            registered_time=time(run.created_at),
            resource_pool=run.pool,
            slots_needed=run.slots,
            resources=[
                ResourcesSummary(
                    resources_type=f"{scheduler}-job",
                    resources_id=container_id(attempt, node),
                    allocation_id=str(attempt),
                    container_id=container_id(attempt, node),
                    agent_devices={node: {"devices": []}},
                )
                for node in nodes
            ],
            scheduler_type="slurm" if scheduler == "slurm" else "priority",
            priority=priority,
            job_id=run.scheduler_job_id,
            reason=of_run(run),
        )


class Tasks(Wire):
    allocation_id_to_summary: dict[str, AllocationSummary]


class TaskCount(Wire):
    commands: int = 0
    notebooks: int = 0
    shells: int = 0
    tensorboards: int = 0


class Preemption(Wire):
    preempt: bool


router = new_router(prefix="/api/v1/tasks", tags=["tasks"])
older = new_router(tags=["tasks"])


def _task(connection: Connection, who: Principal, task_id: str) -> facts.Task:
    """Raises: NotFound, also where its experiment was deleted, and Forbidden."""
    task = queries.task(connection, task_id)
    if task.trial_id is not None:
        queries.trial(connection, task.trial_id)
    may_see_experiment(who, task.experiment_id)
    return task


def _log(installation: Installation, store: ReadStore, task: facts.Task) -> TaskLog:
    return TaskLog(installation, store, task.id, task.trial_id or 0)


@router.get("")
def tasks(connection: Reading, installation: TheInstallation, who: ViewerSomewhere) -> Tasks:
    """Every run that has not ended."""
    live = queries.live_runs(connection)
    names = queries.names_of_experiments(connection, (run.experiment_id for run, _ in live if run.experiment_id))
    priorities = {job.id: job.priority for job in queue.jobs(connection)}
    scheduler = installation.scheduler
    summaries = [
        AllocationSummary.of(
            run,
            task,
            names.get(run.experiment_id or 0, ""),
            priorities.get(str(run.experiment_id or run.task_id)),
            scheduler,
        )
        for run, task in live
    ]
    return Tasks(allocation_id_to_summary={summary.allocation_id: summary for summary in summaries})


@older.get("/tasks")
def tasks_as_before(connection: Reading, installation: TheInstallation, who: ViewerSomewhere) -> dict[str, Any]:
    """The same as it was before API v1, which scripts still poll: by allocation, with names in snake_case."""
    by_id = tasks(connection, installation, who).allocation_id_to_summary
    summaries = {id: summary.model_dump() for id, summary in by_id.items()}
    for summary in summaries.values():
        for resources in summary["resources"]:
            of_nodes = resources["agent_devices"]
            resources["agent_devices"] = {node: held["devices"] for node, held in of_nodes.items()}
    return summaries


@router.get("/count")
def count(connection: Reading, who: ViewerSomewhere) -> TaskCount:
    """How many tasks of each kind have not ended."""
    counts = queries.count_live_tasks(connection)
    return TaskCount(
        commands=counts.get(TaskKind.COMMAND, 0),
        notebooks=counts.get(TaskKind.NOTEBOOK, 0),
        shells=counts.get(TaskKind.SHELL, 0),
        tensorboards=counts.get(TaskKind.TENSORBOARD, 0),
    )


@router.get("/{task_id}")
def get_task(task_id: str, launcher: TheLauncher, connection: Reading, who: AnyPrincipal) -> TaskAnswer:
    fact = _task(connection, who, task_id)
    runs = {run.id: run for run in queries.runs_of_task(connection, task_id)}
    attempts = queries.attempts_of_task(connection, task_id)
    # The newest first, for clients look at the first.
    attempts.sort(key=lambda attempt: (runs[attempt.run_id].number, attempt.number), reverse=True)
    task = Task(
        task_id=task_id,
        task_type=type_of(fact),
        allocations=[
            Allocation.of(attempt, runs[attempt.run_id], ready=launcher.is_ready(fact, attempt)) for attempt in attempts
        ],
        start_time=time(fact.created_at),
        end_time=time_or_none(fact.ended_at),
        **_of_generic(fact, live=any(run.state is not RunState.ENDED for run in runs.values())),
    )
    return TaskAnswer(task=task)


@router.get("/{task_id}/logs")
def task_logs(
    task_id: str,
    installation: TheInstallation,
    store: TheStore,
    connection: Reading,
    who: AnyPrincipal,
    query: Filtered,
) -> StreamingResponse:
    return stream(_log(installation, store, _task(connection, who, task_id)), query)


@router.get("/{task_id}/logs/fields")
def task_log_fields(
    task_id: str,
    installation: TheInstallation,
    store: TheStore,
    connection: Reading,
    who: AnyPrincipal,
    follow: bool = False,
) -> StreamingResponse:
    return fields(_log(installation, store, _task(connection, who, task_id)), follow=follow)


allocation_routes = new_router(prefix="/api/v1/allocations", tags=["allocations"])

LONGEST = 60.0
"""Seconds: proxies cut connections that are silent for longer."""


@allocation_routes.get("/{allocation_id}/signals/preemption")
async def preemption(
    allocation_id: str,
    request: Request,
    who: AnyPrincipal,
    timeout: Annotated[float, Query(alias="timeoutSeconds")] = -1,
) -> Preemption:
    """Whether the attempt should checkpoint and end; waits for a yes as long as asked (a negative time: as long as possible)."""
    attempt = attempt_id(allocation_id)
    may_be_run(who, attempt.run)
    preemptions: Preemptions = request.app.state.preemptions
    return Preemption(preempt=await preemptions.wait(attempt, LONGEST if timeout < 0 else min(timeout, LONGEST)))


@allocation_routes.post("/{allocation_id}/signals/ack_preemption")
def acknowledge(allocation_id: str, who: AnyPrincipal) -> dict[str, Any]:
    """The attempt's user code knows that it should stop. The journal says so as well; nothing depends on the call."""
    may_be_run(who, attempt_id(allocation_id).run)
    return {}


@allocation_routes.get("/{allocation_id}")
def get_allocation(
    allocation_id: str, launcher: TheLauncher, connection: Reading, who: AnyPrincipal
) -> AllocationAnswer:
    id = attempt_id(allocation_id)
    may_be_run(who, id.run)
    run = queries.run(connection, id.run)
    attempt = queries.attempt(connection, *id)
    ready = launcher.is_ready(queries.task(connection, run.task_id), attempt)
    return AllocationAnswer(allocation=Allocation.of(attempt, run, ready=ready))
