"""Routes of the job queue: experiments and tasks that request slots, in the order in which they get them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.domain.facts import Experiment
from dethpc.domain.records import ConfigPolicy
from dethpc.domain.roles import Role
from dethpc.domain.states import State, TaskKind
from dethpc.engine.events import QueueChange
from dethpc.engine.queueing.pools import Kind
from dethpc.errors import NotFound, Refused, SchedulerUnavailable
from dethpc.insight.waiting import WaitReason
from dethpc.master.durable.records import Records
from dethpc.master.experiments import config_policies
from dethpc.master.experiments.control import Control
from dethpc.master.http.access import (
    EditorSomewhere,
    OrderBy,
    Reading,
    TheCluster,
    TheControl,
    TheInstallation,
    ThePage,
    TheRecords,
    TheStore,
    TheWaits,
    Viewer,
    ViewerSomewhere,
    VisibleStore,
)
from dethpc.master.http.models import JOB_STATES, Float, Pagination, Wire, names_of_states, time, time_or_none
from dethpc.master.http.router import new_router
from dethpc.master.installation import Installation
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.master.watching.wait_reasons import Group
from dethpc.state import queries
from dethpc.state.queries import queue as stored
from dethpc.state.queries.queue import Job as QueuedJob
from dethpc.state.queries.users import UserName, users_of
from dethpc.state.store import ReadStore

TYPES = {
    TaskKind.TRIAL: "TYPE_EXPERIMENT",
    **{
        kind: f"TYPE_{kind.value}"
        for kind in (
            TaskKind.CHECKPOINT_GC,
            TaskKind.COMMAND,
            TaskKind.SHELL,
            TaskKind.NOTEBOOK,
            TaskKind.TENSORBOARD,
        )
    },
}
"""Determined's word for jobs of a kind; for kinds that it does not know: TYPE_GENERIC."""


class JobSummary(Wire):
    state: str
    jobs_ahead: int


class QueueStats(Wire):
    queued_count: int
    scheduled_count: int


class Job(Wire):
    job_id: str
    entity_id: str
    type: str
    name: str
    username: str
    user_id: int
    workspace_id: int
    project_id: int  # ours
    resource_pool: str
    submission_time: str
    is_preemptible: bool
    priority: int | None
    weight: Float | None
    progress: Float
    requested_slots: int
    allocated_slots: int
    summary: JobSummary

    @classmethod
    def of(cls, job: QueuedJob, summary: JobSummary, user: UserName) -> Job:
        return cls(
            workspace_id=job.workspace_id,
            project_id=job.project_id,
            job_id=job.queue_id,
            entity_id=job.id,
            type=TYPES.get(job.kind, "TYPE_GENERIC"),
            name=job.name,
            username=user.name,
            user_id=user.id,
            resource_pool=job.pool,
            submission_time=time(job.created_at),
            is_preemptible=job.kind.trains,
            priority=job.priority,
            weight=job.weight,
            progress=job.progress,
            requested_slots=max(job.slots_live, job.slots_wanted),
            allocated_slots=job.slots_running,
            summary=summary,
        )


class JobV2(Wire):
    """Determined hides jobs of others behind a second, poorer shape; ours are all the reader's own."""

    full: Job


class JobsV2(Wire):
    jobs: list[JobV2]
    pagination: Pagination
    queue_order: str  # ours: how the pool's queue is ordered


class Jobs(Wire):
    jobs: list[Job]
    pagination: Pagination


class PoolQueue(Wire):
    resource_pool: str
    stats: QueueStats
    aggregates: list[dict[str, str]] = []


class PoolQueues(Wire):
    results: list[PoolQueue]


class QueueControl(Wire):
    job_id: str
    ahead_of: str | None = None
    behind_of: str | None = None
    resource_pool: str | None = None
    priority: int | None = None
    weight: float | None = None


class QueueUpdate(Wire):
    updates: list[QueueControl] = []


_NAMED = 100  # trials of a group whose ids are told


class Reason(Wire):
    """``cause``: Slurm's word, or one of ours: max_slots, window, next, submitting, resting, storage, searcher, paused, no_answer.
    ``text``: ``why`` and ``sooner`` as one text. ``start_time``: when it is expected to start."""

    cause: str
    why: str
    sooner: str
    text: str
    start_time: str | None

    @classmethod
    def of(cls, waiting: WaitReason) -> Reason:
        return cls(
            cause=waiting.cause,
            why=waiting.why,
            sooner=waiting.remedy,
            text=str(waiting),
            start_time=time_or_none(waiting.start),
        )


class WaitingGroup(Reason):
    """Trials that wait for the same thing; ids of the first hundred."""

    count: int
    trial_ids: list[int]


class ExperimentWaits(Wire):
    """``text``: what most of its trials wait for; empty when none waits."""

    experiment_id: int
    job_id: str
    text: str
    count: int
    groups: list[WaitingGroup]

    @classmethod
    def of(cls, experiment: Experiment, groups: Sequence[Group]) -> ExperimentWaits:
        waiting_groups = [
            WaitingGroup(
                **Reason.of(group.waiting).model_dump(), count=len(group.trials), trial_ids=group.trials[:_NAMED]
            )
            for group in groups
        ]
        return cls(
            experiment_id=experiment.id,
            job_id=experiment.queue_id,
            text=waiting_groups[0].text if waiting_groups else "",
            count=sum(group.count for group in waiting_groups),
            groups=waiting_groups,
        )


class AllWaits(Wire):
    experiments: list[ExperimentWaits]


class TrialWaits(Wire):
    """``waiting``: None when the trial waits for nothing."""

    trial_id: int
    waiting: Reason | None


router = new_router(prefix="/api/v1", tags=["jobs"])

SHORTEST = 4
"""How many letters of a job's id name it, at least."""


def kind(installation: Installation, pool: str) -> Kind:
    """How the pool's queue is ordered."""
    pool_config = installation.site.pools.get(pool)
    return pool_config.scheduler if pool_config else "priority"


def _state(job: QueuedJob) -> str:
    return "STATE_SCHEDULED" if job.runs_running else "STATE_QUEUED"


def _jobs(control: Control, connection: Connection, pool: str | None) -> list[tuple[int, QueuedJob]]:
    """Jobs in the order in which they are served, pool by pool, each with how many are ahead of it."""
    ordered: list[tuple[int, QueuedJob]] = []
    for name, group in groupby(stored.jobs(connection, pool), key=lambda job: job.pool):
        places = {queue_id: n for n, queue_id in enumerate(control.queue_order(name))}
        jobs = enumerate(sorted(group, key=lambda job: places.get(job.queue_id, len(places))))
        ordered += [(max(ahead, places.get(job.queue_id, 0)), job) for ahead, job in jobs]
    return ordered


def summary(control: Control, connection: Connection, fact: facts.Experiment) -> JobSummary | None:
    """The experiment's place in the queue; None when it wants no slots."""
    if fact.state is not State.ACTIVE:
        return None
    for ahead, job in _jobs(control, connection, fact.pool):
        if job.queue_id == fact.queue_id:
            return JobSummary(state=_state(job), jobs_ahead=ahead)
    return JobSummary(state="STATE_QUEUED", jobs_ahead=0)


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """The pool and the states of the jobs that a list is requested of, and their page; ours: their project or workspace."""

    paging: ThePage
    pool: Annotated[str | None, Query(alias="resourcePool")] = None
    order_by: OrderBy = ""
    states: Annotated[tuple[str, ...], Query()] = ()
    project_id: Annotated[int | None, Query(alias="projectId")] = None
    workspace_id: Annotated[int | None, Query(alias="workspaceId")] = None


def _listed(control: Control, cluster: ClusterView, connection: Connection, query: QueueQuery) -> list[Job]:
    state_names = names_of_states(query.states, JOB_STATES)
    queued = _jobs(control, connection, query.pool or _default_pool(cluster))
    users = users_of(connection, [job for _, job in queued])
    jobs = [
        Job.of(job, JobSummary(state=_state(job), jobs_ahead=ahead), users[job.user_id])
        for ahead, job in queued
        if (not state_names or _state(job).removeprefix("STATE_") in state_names)
        and query.project_id in (None, job.project_id)
        and query.workspace_id in (None, job.workspace_id)
    ]
    return jobs[::-1] if query.order_by == "ORDER_BY_DESC" else jobs


def _default_pool(cluster: ClusterView) -> str | None:
    """None: there is none, or a scheduler that has not answered yet does not say."""
    with contextlib.suppress(SchedulerUnavailable):
        return next((pool.name for pool in cluster.pools() if pool.default), None)
    return None


@router.get("/job-queues-v2")
def queue_v2(
    installation: TheInstallation,
    control: TheControl,
    cluster: TheCluster,
    connection: Reading,
    who: ViewerSomewhere,
    query: Annotated[QueueQuery, Depends()],
) -> JobsV2:
    jobs, pagination = query.paging.of(_listed(control, cluster, connection, query))
    queue_order = kind(installation, query.pool or _default_pool(cluster) or "")
    return JobsV2(jobs=[JobV2(full=job) for job in jobs], pagination=pagination, queue_order=queue_order)


@router.get("/job-queues")
def queue(
    control: TheControl,
    cluster: TheCluster,
    connection: Reading,
    who: ViewerSomewhere,
    query: Annotated[QueueQuery, Depends()],
) -> Jobs:
    jobs, pagination = query.paging.of(_listed(control, cluster, connection, query))
    return Jobs(jobs=jobs, pagination=pagination)


def pool_stats(connection: Connection) -> dict[str, QueueStats]:
    """How many jobs of each pool wait and run."""
    stats: dict[str, QueueStats] = {}
    for job in stored.jobs(connection):
        counts = stats.setdefault(job.pool, QueueStats(queued_count=0, scheduled_count=0))
        if job.runs_running:
            counts.scheduled_count += 1
        else:
            counts.queued_count += 1
    return stats


@router.get("/job-queues/stats")
def queue_stats(
    cluster: TheCluster,
    connection: Reading,
    who: ViewerSomewhere,
    pools: Annotated[tuple[str, ...], Query(alias="resourcePools")] = (),
) -> PoolQueues:
    stats = pool_stats(connection)
    names = pools or [pool.name for pool in cluster.pools()]
    none = QueueStats(queued_count=0, scheduled_count=0)
    return PoolQueues(results=[PoolQueue(resource_pool=name, stats=stats.get(name, none)) for name in names])


@router.post("/job-queues")
def update(
    request: QueueUpdate, control: TheControl, records: TheRecords, visible: VisibleStore, who: EditorSomewhere
) -> dict[str, Any]:
    """Change priorities, weights, places and pools of jobs: all that the request says, in its order, or nothing. Who may change an
    experiment or a task may change its job, and put it beside any job that they see."""
    with visible.read() as connection:
        jobs = {job.queue_id: job for job in stored.jobs(connection)}
    entities = {queue_id: job.id for queue_id, job in jobs.items()}

    def neighbour(job_id: str | None) -> str | None:
        return None if not job_id else _find(entities, job_id)

    changes = []
    for wish in request.updates:
        changes.append(
            QueueChange(
                _find(entities, wish.job_id),
                priority=wish.priority,
                weight=wish.weight,
                pool=wish.resource_pool or None,
                ahead_of=neighbour(wish.ahead_of),
                behind_of=neighbour(wish.behind_of),
            )
        )
    for change in changes:
        who.must_be(Role.EDITOR, jobs[change.queue_id].workspace_id)
    _check_policies(records, jobs, changes)
    control.update_queue(changes)
    return {}


def _check_policies(records: Records, jobs: Mapping[str, QueuedJob], changes: Sequence[QueueChange]) -> None:
    """Raises Refused where the config policies that bind a job forbid what it is to get. A job that is put beside another one gets
    its priority."""
    priorities = {queue_id: job.priority for queue_id, job in jobs.items()}
    for change in changes:
        job, beside = jobs[change.queue_id], change.ahead_of or change.behind_of
        priority = change.priority if beside is None else priorities[beside]
        if priority == priorities[job.queue_id]:
            priority = None
        resources = {"priority": priority, "weight": change.weight, "resource_pool": change.pool}
        config_policies.check_changes(resources, _policies(records, job))
        if priority is not None:
            priorities[job.queue_id] = priority


def _policies(records: Records, job: QueuedJob) -> Sequence[ConfigPolicy]:
    """The config policies that bind the job."""
    kind = config_policies.EXPERIMENTS if job.kind is TaskKind.TRIAL else config_policies.TASKS
    return config_policies.policies_of(records, job.workspace_id, kind)


def _find(entities: Mapping[str, str], job_id: str) -> str:
    """The job whose id it is, of which the beginning is enough, or that of the experiment with this number. ``entities``: what each
    job is, by its id. Raises NotFound, Refused."""
    if job_id in entities:
        return job_id
    alike = [
        queue_id
        for queue_id, entity in entities.items()
        if entity == job_id or (len(job_id) >= SHORTEST and queue_id.startswith(job_id))
    ]
    if len(alike) > 1:
        raise Refused(f"job {job_id} could be {' or '.join(sorted(alike))}; give more of its id")
    if not alike:
        raise NotFound(f"job {job_id} not found in the queue; see det job list")
    return alike[0]


waiting_routes = new_router(prefix="/api/v1", tags=["waiting"])


# The database is read before or after the scheduler is asked, never meanwhile: it may take its time.


@waiting_routes.get("/experiments/{experiment_id}/waiting")
def of_experiment(experiment_id: int, store: TheStore, waits: TheWaits, who: Viewer) -> ExperimentWaits:
    """What the experiment's trials wait for, and what would start them sooner."""
    return _waits(store, experiment_id, waits.of_experiment(experiment_id))


@waiting_routes.get("/trials/{trial_id}/waiting")
def of_trial(trial_id: int, store: TheStore, waits: TheWaits, who: Viewer) -> TrialWaits:
    """What the trial waits for, if it does."""
    with store.read() as connection:
        queries.trial(connection, trial_id)
    waiting = waits.of_trial(trial_id)
    return TrialWaits(trial_id=trial_id, waiting=Reason.of(waiting) if waiting is not None else None)


@waiting_routes.get("/waiting")
def every(store: TheStore, waits: TheWaits, who: ViewerSomewhere) -> AllWaits:
    """What every experiment that has not ended waits for; those that wait for nothing are left out."""
    live = waits.live()
    with store.read() as connection:
        visible = {fact.id for fact in queries.experiments_by_id(connection, live)}
    groups = {id: waits.of_experiment(id) for id in live if id in visible}
    return AllWaits(experiments=[_waits(store, id, waits) for id, waits in groups.items() if waits])


def _waits(store: ReadStore, experiment_id: int, groups: Sequence[Group]) -> ExperimentWaits:
    with store.read() as connection:
        return ExperimentWaits.of(queries.experiment(connection, experiment_id), groups)
