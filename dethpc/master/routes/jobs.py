"""The job queue: experiments that want slots, in the order in which they get them."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from dethpc.engine import events
from dethpc.errors import NotFound, NotSupportedYet
from dethpc.master.routes.access import Limit, Offset, OrderBy, Owner, Reading, TheMaster
from dethpc.master.wire import job as wire
from dethpc.master.wire.base import names_of_states, paged, time
from dethpc.master.wire.cluster import QueueStats
from dethpc.master.wire.experiment import JobSummary
from dethpc.state import queries

router = APIRouter(prefix="/api/v1", tags=["jobs"])


def _jobs(connection: Connection, pool: str | None, states: Sequence[str], descending: bool) -> list[wire.Job]:
    queue = queries.queue(connection, pool)
    figures = queries.experiment_figures(connection, [fact.id for fact in queue])
    ahead: dict[str, int] = {}
    jobs = []
    for fact in queue:
        figure = figures[fact.id]
        place = ahead.setdefault(fact.pool, 0)
        ahead[fact.pool] += 1
        state = "STATE_SCHEDULED" if figure.running else "STATE_QUEUED"
        jobs.append(
            wire.Job(
                job_id=fact.job_id,
                entity_id=str(fact.id),
                name=fact.name,
                username=fact.owner,
                resource_pool=fact.pool,
                submission_time=time(fact.created_at),
                priority=fact.priority,
                weight=fact.weight,
                progress=fact.progress,
                requested_slots=max(figure.slots_live, fact.slots_per_trial),
                allocated_slots=figure.slots_running,
                summary=JobSummary(state=state, jobs_ahead=place),
            )
        )
    wanted = names_of_states(states)
    jobs = [job for job in jobs if not wanted or job.summary.state.removeprefix("STATE_") in wanted]
    return jobs[::-1] if descending else jobs


Pool = Annotated[str | None, Query(alias="resourcePool")]
States = Annotated[tuple[str, ...], Query()]


@router.get("/job-queues-v2")
def queue_v2(
    connection: Reading,
    who: Owner,
    pool: Pool = None,
    limit: Limit = 0,
    offset: Offset = 0,
    order_by: OrderBy = "",
    states: States = (),
) -> wire.JobsV2:
    found, pagination = paged(_jobs(connection, pool, states, order_by == "ORDER_BY_DESC"), offset, limit)
    return wire.JobsV2(jobs=[wire.JobV2(full=job) for job in found], pagination=pagination)


@router.get("/job-queues")
def queue(
    connection: Reading,
    who: Owner,
    pool: Pool = None,
    limit: Limit = 0,
    offset: Offset = 0,
    order_by: OrderBy = "",
    states: States = (),
) -> wire.Jobs:
    found, pagination = paged(_jobs(connection, pool, states, order_by == "ORDER_BY_DESC"), offset, limit)
    return wire.Jobs(jobs=found, pagination=pagination)


def pool_stats(connection: Connection) -> dict[str, QueueStats]:
    """How many jobs of each pool wait and run."""
    stats: dict[str, QueueStats] = {}
    for job in _jobs(connection, None, [], False):
        known = stats.setdefault(job.resource_pool, QueueStats(queued_count=0, scheduled_count=0))
        if job.summary.state == "STATE_SCHEDULED":
            known.scheduled_count += 1
        else:
            known.queued_count += 1
    return stats


@router.get("/job-queues/stats")
def queue_stats(
    master: TheMaster,
    connection: Reading,
    who: Owner,
    pools: Annotated[tuple[str, ...], Query(alias="resourcePools")] = (),
) -> wire.PoolQueues:
    stats = pool_stats(connection)
    names = pools or [pool.name for pool in master.pools()]
    none = QueueStats(queued_count=0, scheduled_count=0)
    return wire.PoolQueues(results=[wire.PoolQueue(resource_pool=name, stats=stats.get(name, none)) for name in names])


@router.post("/job-queues")
def update(request: wire.QueueUpdate, master: TheMaster, connection: Reading, who: Owner) -> dict[str, Any]:
    """Change priority or weight of jobs, all or none of them being known."""
    by_job = {fact.job_id: fact.id for fact in queries.queue(connection)}
    for change in request.updates:
        if change.ahead_of or change.behind_of or change.resource_pool:
            raise NotSupportedYet("moving a job within the queue or to another pool is not supported yet")
        if change.job_id not in by_job:
            raise NotFound(f"job {change.job_id} not found in the queue")
    for change in request.updates:
        changes = {name: value for name in ("priority", "weight") if (value := getattr(change, name)) is not None}
        if changes:
            master.do(events.ChangeExperiment(by_job[change.job_id], changes, clock.time()))
    return {}
