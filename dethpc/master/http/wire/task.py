"""Tasks and their allocations (a trial's attempts) on the wire."""

from __future__ import annotations

from dethpc.domain import facts
from dethpc.domain.ids import AttemptId
from dethpc.domain.states import AttemptState, RunState, TaskKind
from dethpc.master.http.models import Wire, time, time_or_none


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
    is_ready: bool = True
    exit_reason: str | None
    status_code: int | None

    @classmethod
    def of(cls, attempt: facts.Attempt, run: facts.Run) -> Allocation:
        ended = attempt.state is AttemptState.ENDED
        return cls(
            allocation_id=str(AttemptId(attempt.run_id, attempt.number)),
            task_id=run.task_id,
            state="STATE_TERMINATED" if ended else "STATE_RUNNING",
            slots=run.slots,
            start_time=time(attempt.started_at),
            end_time=time_or_none(attempt.ended_at),
            exit_reason=(attempt.reason or (attempt.end.value if attempt.end else "")) if ended else None,
            status_code=run.exit_code if ended else None,
        )


class Task(Wire):
    task_id: str
    task_type: str
    allocations: list[Allocation]
    start_time: str
    end_time: str | None


class TaskAnswer(Wire):
    task: Task


class AllocationAnswer(Wire):
    allocation: Allocation


class ResourcesSummary(Wire):
    resources_id: str
    resources_type: str = "slurm-job"
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
    scheduler_type: str = "slurm"
    priority: int | None = None
    proxy_ports: list[str] = []
    job_id: str | None  # ours: the scheduler's
    reason: str  # ours: why it is pending

    @classmethod
    def of(cls, run: facts.Run, task: facts.Task, experiment: str) -> AllocationSummary:
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
                    resources_id=container_id(attempt, node),
                    allocation_id=str(attempt),
                    container_id=container_id(attempt, node),
                    agent_devices={node: {"devices": []}},
                )
                for node in nodes
            ],
            job_id=run.scheduler_job_id,
            reason=run.reason,
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


class RingRequest(Wire):
    """Journal lines as they are in the attempt's journal, quoted; later releases send the lines themselves."""

    lines: list[str] = []


class Stop(Wire):
    reason: str


class RingAnswer(Wire):
    """``ring_after``: seconds until the attempt should ring again, where it has nothing urgent to say."""

    applied_seq: int
    stop: Stop | None
    ring_after: float
