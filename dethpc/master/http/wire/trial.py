"""Trials, their workloads and their time series on the wire."""

from __future__ import annotations

import time as clock
from dataclasses import asdict
from typing import Any

from dethpc.domain import facts
from dethpc.domain.ids import task_id
from dethpc.domain.log_policies import Noted
from dethpc.domain.states import shown_as
from dethpc.insight.usage import Usage
from dethpc.master.http.models import Float, Pagination, Plain, Wire, state, time, time_or_none
from dethpc.state.queries import TrialFigures


def trial_state(trial: facts.Trial, running: bool) -> str:
    return f"STATE_{shown_as(trial.state, running)}"


class Metrics(Wire):
    avg_metrics: Plain
    batch_metrics: list[Plain] | None = None


class MetricsWorkload(Wire):
    """One report of a group of metrics."""

    end_time: str | None
    metrics: Metrics
    num_inputs: int = 0
    total_batches: int

    @classmethod
    def of(cls, fact: facts.Metric, batches: bool = False) -> MetricsWorkload:
        values, batch_metrics = split(fact.metrics)
        metrics = Metrics(avg_metrics=values, batch_metrics=batch_metrics if batches else None)
        return cls(end_time=time(fact.reported_at), metrics=metrics, total_batches=fact.steps_completed)


def split(metrics: dict[str, Any]) -> tuple[dict[str, Any], list[Any] | None]:
    """Averaged values, and the per-batch values that older training code reports beside them."""
    batches = metrics.get("batch_metrics")
    if not isinstance(batches, list):
        return metrics, None
    return {name: value for name, value in metrics.items() if name != "batch_metrics"}, batches


class CheckpointWorkload(Wire):
    uuid: str
    end_time: str
    state: str
    resources: dict[str, str]
    total_batches: int
    metadata: Plain

    @classmethod
    def of(cls, fact: facts.Checkpoint) -> CheckpointWorkload:
        return cls(
            uuid=fact.uuid,
            end_time=time(fact.reported_at),
            state=state(fact.state),
            resources={path: str(size) for path, size in fact.resources.items()},
            total_batches=fact.steps_completed,
            metadata=fact.metadata,
        )


class Trial(Wire):
    id: int
    experiment_id: int
    hparams: Plain
    state: str
    runner_state: str
    metadata: Plain
    restarts: int
    start_time: str
    end_time: str | None
    wall_clock_time: Float
    total_batches_processed: int
    best_validation: MetricsWorkload | None
    latest_validation: MetricsWorkload | None
    best_checkpoint: CheckpointWorkload | None
    log_policy_matched: str | None
    searcher_metric_value: Float | None
    summary_metrics: Plain
    checkpoint_count: int
    total_checkpoint_size: str
    task_id: str
    task_ids: list[str]
    warm_start_checkpoint_uuid: str | None
    external_trial_id: str | None  # ours: as its script calls it
    progress: Float  # ours
    reason: str  # ours: why it is in this state, in words
    warning: str  # ours: why its search can do nothing with what it reports
    image: str | None  # ours: digest of the image that its containers start from
    held_slots: int | None  # ours: slots that its job holds now, also while it stops; None: none runs
    suspended: bool = False  # ours: the scheduler has suspended its job

    @classmethod
    def of(cls, fact: facts.Trial, figures: TrialFigures) -> Trial:
        begin = fact.started_at or fact.created_at
        task = task_id(fact.experiment_id, fact.id)
        return cls(
            id=fact.id,
            experiment_id=fact.experiment_id,
            hparams=fact.hparams,
            state=trial_state(fact, figures.held_slots is not None),
            runner_state=fact.status or "UNSPECIFIED",
            metadata=fact.metadata or None,
            restarts=fact.restarts,
            start_time=time(begin),
            end_time=time_or_none(fact.ended_at),
            wall_clock_time=max((fact.ended_at or clock.time()) - begin, 0.0) if fact.started_at else 0.0,
            total_batches_processed=fact.steps_completed,
            best_validation=MetricsWorkload.of(figures.best) if figures.best else None,
            latest_validation=MetricsWorkload.of(figures.latest) if figures.latest else None,
            best_checkpoint=CheckpointWorkload.of(figures.best_checkpoint) if figures.best_checkpoint else None,
            log_policy_matched=Noted.of(fact.search).name or None,
            searcher_metric_value=fact.best_validation,
            summary_metrics=figures.summary,
            checkpoint_count=figures.checkpoints,
            total_checkpoint_size=str(figures.checkpoint_bytes),
            task_id=task,
            task_ids=[task],
            warm_start_checkpoint_uuid=fact.source_checkpoint,
            external_trial_id=fact.external_id or None,
            progress=fact.progress,
            reason=fact.reason,
            warning=fact.warning,
            image=fact.image or None,
            held_slots=figures.held_slots,
            suspended=figures.suspended,
        )


class RunUsage(Wire):
    """Ours: what the run's last attempt used of what it was given, as ``insight.usage`` has it."""

    seconds: Float
    cpu_seconds: Float
    cpus: int | None
    cpu: Float | None
    memory_bytes: int
    memory_given_bytes: int | None
    memory: Float | None
    gpus: int
    gpu: Float | None
    gpu_memory: Float | None
    advice: list[str]


class TrialRun(Wire):
    """Ours: one submission of the trial, one job of the scheduler. ``directory`` is where its script, logs and reports are."""

    id: str
    job_id: str | None
    state: str
    nodes: list[str]
    slots: int
    resource_pool: str
    start_time: str | None
    end_time: str | None
    reason: str
    directory: str
    usage: RunUsage | None  # None: nobody has measured it yet, or the files are gone

    @classmethod
    def of(cls, fact: facts.Run, directory: str, usage: Usage | None) -> TrialRun:
        return cls(
            id=fact.id,
            job_id=fact.scheduler_job_id,
            state=(fact.end or fact.state).value,
            nodes=fact.nodes,
            slots=fact.slots,
            resource_pool=fact.pool,
            start_time=time_or_none(fact.started_at),
            end_time=time_or_none(fact.ended_at),
            reason=fact.reason,
            directory=directory,
            usage=None if usage is None else RunUsage(**asdict(usage)),
        )


class RunOfJob(Wire):
    """Ours: what a job of the scheduler executed. ``task_kind``: as ``TaskKind``. Without a trial there is no
    ``experiment_name``, and an ``experiment_id`` where the task deletes that experiment."""

    run: TrialRun
    task_kind: str
    task_name: str
    trial_id: int | None
    trial_state: str
    trial_reason: str
    experiment_id: int | None
    experiment_name: str


class RunsOfJob(Wire):
    job_id: str
    runs: list[RunOfJob]  # oldest first


class TrialAnswer(Wire):
    trial: Trial
    runs: list[TrialRun]  # ours: the last ones, oldest first
    previous_trial_id: int | None  # ours: the trial of its experiment that was created before it
    next_trial_id: int | None  # ours


class Trials(Wire):
    trials: list[Trial]
    pagination: Pagination


class Workload(Wire):
    """Exactly one of the three."""

    training: MetricsWorkload | None = None
    validation: MetricsWorkload | None = None
    checkpoint: CheckpointWorkload | None = None


class Workloads(Wire):
    workloads: list[Workload]
    pagination: Pagination


class DataPoint(Wire):
    batches: int
    values: Plain
    time: str
    epoch: Float | None = None


class Series(Wire):
    """Points of one group of metrics, in order of steps."""

    group: str
    type: str
    data: list[DataPoint]


class ComparedTrial(Wire):
    trial: Trial
    metrics: list[Series]


class Comparison(Wire):
    trials: list[ComparedTrial]


class MetricsReport(Wire):
    """One report in a stream. ``metrics`` holds the values under the key that readers of its group expect."""

    id: int
    trial_id: int
    trial_run_id: int
    total_batches: int
    end_time: str
    group: str
    metrics: Plain
    archived: bool = False

    @classmethod
    def of(cls, id: int, fact: facts.Metric) -> MetricsReport:
        values, batches = split(fact.metrics)
        body: dict[str, Any] = {"validation_metrics" if fact.group == "validation" else "avg_metrics": values}
        if batches is not None:
            body["batch_metrics"] = batches
        return cls(
            id=id,
            trial_id=fact.trial_id,
            trial_run_id=int(fact.run_id.rpartition(".")[2] or 0),
            total_batches=fact.steps_completed,
            end_time=time(fact.reported_at),
            group=fact.group,
            metrics=body,
        )


class MetricsReports(Wire):
    metrics: list[MetricsReport]
