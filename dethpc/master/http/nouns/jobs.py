"""The job queue: experiments and tasks that want slots, in the order in which they get them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.domain.states import State
from dethpc.engine.events import QueueChange
from dethpc.engine.pools import Kind
from dethpc.errors import NotFound, Refused
from dethpc.master.experiments.control import Control
from dethpc.master.http.access import (
    Limit,
    Offset,
    OrderBy,
    Owner,
    Reading,
    TheCluster,
    TheControl,
    TheInstallation,
)
from dethpc.master.http.models import JOB_STATES, names_of_states, paged
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import job as wire
from dethpc.master.http.wire.cluster import QueueStats
from dethpc.master.http.wire.experiment import JobSummary
from dethpc.master.installation import Installation
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.state.queries import queue as stored
from dethpc.state.queries.queue import Job

router = new_router(prefix="/api/v1", tags=["jobs"])

SHORTEST = 4
"""How many letters of a job's id name it, at least."""


def kind(installation: Installation, pool: str) -> Kind:
    """How the pool's queue is ordered."""
    known = installation.site.pools.get(pool)
    return known.scheduler if known else "priority"


def _state(job: Job) -> str:
    return "STATE_SCHEDULED" if job.slots_running else "STATE_QUEUED"


def _jobs(control: Control, connection: Connection, pool: str | None) -> list[tuple[int, Job]]:
    """Jobs in the order in which they are served, pool by pool, each with how many are ahead of it."""
    ordered: list[tuple[int, Job]] = []
    for name, group in groupby(stored.jobs(connection, pool), key=lambda job: job.pool):
        places = {queue_id: n for n, queue_id in enumerate(control.queue_order(name))}
        ordered += enumerate(sorted(group, key=lambda job: places.get(job.queue_id, len(places))))
    return ordered


def summary(control: Control, connection: Connection, fact: facts.Experiment) -> JobSummary | None:
    """The experiment's place in the queue; None when it wants no slots."""
    if fact.state is not State.ACTIVE:
        return None
    for ahead, job in _jobs(control, connection, fact.pool):
        if job.queue_id == fact.queue_id:
            return JobSummary(state=_state(job), jobs_ahead=ahead)
    return JobSummary(state="STATE_QUEUED", jobs_ahead=0)


def _listed(
    control: Control,
    cluster: ClusterView,
    connection: Connection,
    pool: str | None,
    states: Sequence[str],
    descending: bool,
) -> list[wire.Job]:
    wanted = names_of_states(states, JOB_STATES)
    jobs = [
        wire.Job.of(job, JobSummary(state=_state(job), jobs_ahead=ahead))
        for ahead, job in _jobs(control, connection, pool or _default_pool(cluster))
        if not wanted or _state(job).removeprefix("STATE_") in wanted
    ]
    return jobs[::-1] if descending else jobs


def _default_pool(cluster: ClusterView) -> str | None:
    return next((pool.name for pool in cluster.pools() if pool.default), None)


Pool = Annotated[str | None, Query(alias="resourcePool")]
States = Annotated[tuple[str, ...], Query()]


@router.get("/job-queues-v2")
def queue_v2(
    installation: TheInstallation,
    control: TheControl,
    cluster: TheCluster,
    connection: Reading,
    who: Owner,
    pool: Pool = None,
    limit: Limit = 0,
    offset: Offset = 0,
    order_by: OrderBy = "",
    states: States = (),
) -> wire.JobsV2:
    found, pagination = paged(
        _listed(control, cluster, connection, pool, states, order_by == "ORDER_BY_DESC"), offset, limit
    )
    queue_order = kind(installation, pool or _default_pool(cluster) or "")
    return wire.JobsV2(jobs=[wire.JobV2(full=job) for job in found], pagination=pagination, queue_order=queue_order)


@router.get("/job-queues")
def queue(
    control: TheControl,
    cluster: TheCluster,
    connection: Reading,
    who: Owner,
    pool: Pool = None,
    limit: Limit = 0,
    offset: Offset = 0,
    order_by: OrderBy = "",
    states: States = (),
) -> wire.Jobs:
    found, pagination = paged(
        _listed(control, cluster, connection, pool, states, order_by == "ORDER_BY_DESC"), offset, limit
    )
    return wire.Jobs(jobs=found, pagination=pagination)


def pool_stats(connection: Connection) -> dict[str, QueueStats]:
    """How many jobs of each pool wait and run."""
    stats: dict[str, QueueStats] = {}
    for job in stored.jobs(connection):
        known = stats.setdefault(job.pool, QueueStats(queued_count=0, scheduled_count=0))
        if job.slots_running:
            known.scheduled_count += 1
        else:
            known.queued_count += 1
    return stats


@router.get("/job-queues/stats")
def queue_stats(
    cluster: TheCluster,
    connection: Reading,
    who: Owner,
    pools: Annotated[tuple[str, ...], Query(alias="resourcePools")] = (),
) -> wire.PoolQueues:
    stats = pool_stats(connection)
    names = pools or [pool.name for pool in cluster.pools()]
    none = QueueStats(queued_count=0, scheduled_count=0)
    return wire.PoolQueues(results=[wire.PoolQueue(resource_pool=name, stats=stats.get(name, none)) for name in names])


@router.post("/job-queues")
def update(request: wire.QueueUpdate, control: TheControl, connection: Reading, who: Owner) -> dict[str, Any]:
    """Change priorities, weights, places and pools of jobs: all that the request says, in its order, or nothing."""
    known = {job.queue_id: job.id for job in stored.jobs(connection)}

    def found(job_id: str | None) -> str | None:
        return None if not job_id else _find(known, job_id)

    changes = []
    for wish in request.updates:
        changes.append(
            QueueChange(
                _find(known, wish.job_id),
                priority=wish.priority,
                weight=wish.weight,
                pool=wish.resource_pool or None,
                ahead_of=found(wish.ahead_of),
                behind_of=found(wish.behind_of),
            )
        )
    control.update_queue(changes)
    return {}


def _find(known: Mapping[str, str], job_id: str) -> str:
    """The job whose id it is, of which the beginning is enough, or that of the experiment with this number. ``known``: what each
    job is, by its id. Raises NotFound, Refused."""
    if job_id in known:
        return job_id
    alike = [
        each
        for each, entity in known.items()
        if entity == job_id or (len(job_id) >= SHORTEST and each.startswith(job_id))
    ]
    if len(alike) > 1:
        raise Refused(f"job {job_id} could be {' or '.join(sorted(alike))}; give more of its id")
    if not alike:
        raise NotFound(f"job {job_id} not found in the queue; see det job list")
    return alike[0]
