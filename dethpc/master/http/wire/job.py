"""Entries of the job queue on the wire."""

from __future__ import annotations

from dethpc.domain.states import TaskKind
from dethpc.master.http.models import Float, Pagination, Wire, time
from dethpc.master.http.wire.cluster import QueueStats
from dethpc.master.http.wire.experiment import JobSummary
from dethpc.state.queries.queue import Job as QueuedJob

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


class Job(Wire):
    job_id: str
    entity_id: str
    type: str
    name: str
    username: str
    user_id: int = 1
    workspace_id: int = 1
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
    def of(cls, job: QueuedJob, summary: JobSummary) -> Job:
        return cls(
            job_id=job.queue_id,
            entity_id=job.id,
            type=TYPES.get(job.kind, "TYPE_GENERIC"),
            name=job.name,
            username=job.owner,
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
