"""Routes and wire models of trials: their state, workloads, metrics and logs."""

from __future__ import annotations

import contextlib
import time as clock
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.domain.attempts.log_policies import Noted
from dethpc.domain.ids import task_id
from dethpc.domain.states import CheckpointState, RunState, shown_as
from dethpc.engine import events
from dethpc.errors import NotFound, NotSupportedYet
from dethpc.insight import usage
from dethpc.insight.reasons import of_run
from dethpc.insight.timeline import end_for_people
from dethpc.insight.usage import Usage
from dethpc.master.http.access import (
    AnyPrincipal,
    Editor,
    OrderBy,
    Reading,
    TheCluster,
    TheControl,
    TheInstallation,
    ThePage,
    TheStore,
    Viewer,
    ViewerSomewhere,
    visible_trial,
)
from dethpc.master.http.models import Float, Pagination, Plain, Wire, state, time, time_or_none
from dethpc.master.http.nouns.checkpoints import CheckpointList, Checkpoints
from dethpc.master.http.nouns.logs import Filtered, TaskLog, fields, stream
from dethpc.master.http.nouns.metrics import MetricsWorkload, Series, drawn
from dethpc.master.http.router import new_router
from dethpc.master.installation import Installation
from dethpc.state import queries
from dethpc.state.queries import TrialFigures


def trial_state(trial: facts.Trial, running: bool) -> str:
    return f"STATE_{shown_as(trial.state, running)}"


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
            wall_clock_time=fact.duration(clock.time()) if fact.started_at else 0.0,
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
    def of(cls, fact: facts.Run, trial: facts.Trial | None, directory: str, usage: Usage | None) -> TrialRun:
        end = fact.end if trial is None else end_for_people(fact.end, fact, trial)
        return cls(
            id=fact.id,
            job_id=fact.scheduler_job_id,
            state=(end or fact.state).value,
            nodes=fact.nodes,
            slots=fact.slots,
            resource_pool=fact.pool,
            start_time=time_or_none(fact.started_at),
            end_time=time_or_none(fact.ended_at),
            reason=of_run(fact),
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


class ComparedTrial(Wire):
    trial: Trial
    metrics: list[Series]


class Comparison(Wire):
    trials: list[ComparedTrial]


router = new_router(prefix="/api/v1", tags=["trials"])

_RUNS = 20  # of a trial, in its own answer


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """The trials, metrics and steps that curves are requested of."""

    trial_ids: Annotated[list[int], Query(alias="trialIds")]
    names: Annotated[tuple[str, ...], Query(alias="metricNames")] = ()
    ids: Annotated[tuple[str, ...], Query(alias="metricIds")] = ()
    group: str = ""
    metric_type: Annotated[str, Query(alias="metricType")] = ""
    points: Annotated[int, Query(alias="maxDatapoints")] = 0
    start: Annotated[int | None, Query(alias="startBatches")] = None
    end: Annotated[int | None, Query(alias="endBatches")] = None
    with_figures: Annotated[
        bool, Query(alias="figures", description="Ours: with each trial's summaries and sizes.")
    ] = True

    def metrics(self) -> tuple[list[str], frozenset[str]]:
        """Groups and names."""
        metric_ids = [tuple(id.split(".", 1)) for id in self.ids if "." in id]  # group.name
        group = self.group or _group_of_type(self.metric_type)
        groups = [group] if group else sorted({pair[0] for pair in metric_ids})
        return groups, frozenset([*self.names, *(pair[1] for pair in metric_ids)])


def _group_of_type(metric_type: str) -> str:
    """The group that Determined's older parameter names; "" for any other value."""
    named = metric_type in ("METRIC_TYPE_TRAINING", "METRIC_TYPE_VALIDATION")
    return metric_type.removeprefix("METRIC_TYPE_").lower() if named else ""


@router.get("/trials/time-series")
def time_series(connection: Reading, who: ViewerSomewhere, query: Annotated[SeriesQuery, Depends()]) -> Comparison:
    """Metrics over steps; with ``maxDatapoints`` thinned out so that the drawn line keeps its shape."""
    groups, metric_names = query.metrics()
    trials = queries.trials_by_id(connection, query.trial_ids)
    figures = queries.trial_figures(connection, trials if query.with_figures else ())
    reports = queries.series(connection, [fact.id for fact in trials], groups, query.start, query.end or None)
    curves = {id: drawn(own, metric_names, query.points) for id, own in groupby(reports, key=attrgetter("trial_id"))}
    none = queries.TrialFigures()
    answer = [
        ComparedTrial(trial=Trial.of(fact, figures.get(fact.id, none)), metrics=curves.get(fact.id, []))
        for fact in trials
    ]
    return Comparison(trials=answer)


# --- one trial


@router.get("/trials/{trial_id}")
def get_trial(trial_id: int, connection: Reading, installation: TheInstallation, who: AnyPrincipal) -> TrialAnswer:
    fact = visible_trial(connection, who, trial_id)
    runs = queries.runs_of_trial(connection, trial_id)[-_RUNS:]
    before, after = queries.neighbours_of_trial(connection, fact)
    return TrialAnswer(
        trial=Trial.of(fact, queries.trial_figures(connection, [fact])[trial_id]),
        runs=[_run(installation, run, fact) for run in runs],
        previous_trial_id=before,
        next_trial_id=after,
    )


def _run(installation: Installation, run: facts.Run, trial: facts.Trial | None) -> TrialRun:
    directory = installation.home.find(run.id)
    uses = []
    if run.attempt >= 0:
        with contextlib.suppress(OSError):
            uses = directory.attempt(run.attempt).node_uses(len(run.nodes))
    return TrialRun.of(run, trial, str(directory.path), usage.of_nodes(uses))


@router.get("/scheduler-jobs/{job_id}")
def runs_of_job(
    job_id: str, connection: Reading, installation: TheInstallation, cluster: TheCluster, who: Viewer
) -> RunsOfJob:
    """Ours: which runs this job of the scheduler executes or executed. An element of a job array is found by its id, such as 28_3,
    and by the number of its own that Slurm gives it. NotFound where none is known."""
    runs = queries.runs_of_job(connection, job_id)
    if not runs and job_id.isdecimal() and (element := cluster.element(job_id)) is not None:
        runs = queries.runs_of_job(connection, element)
    if not runs:
        raise NotFound(f"job {job_id} is not a job of this installation, or its experiment was deleted")
    return RunsOfJob(job_id=job_id, runs=[_run_of_job(connection, installation, *run) for run in runs])


def _run_of_job(connection: Connection, installation: Installation, run: facts.Run, task: facts.Task) -> RunOfJob:
    trial = None if task.trial_id is None else queries.trial(connection, task.trial_id)
    experiment = None if trial is None else queries.experiment(connection, trial.experiment_id)
    return RunOfJob(
        run=_run(installation, run, trial),
        task_kind=task.kind.value,
        task_name=task.name,
        trial_id=task.trial_id,
        trial_state="" if trial is None else trial_state(trial, run.state is RunState.RUNNING),
        trial_reason="" if trial is None else trial.reason,
        experiment_id=task.experiment_id,
        experiment_name="" if experiment is None else experiment.name,
    )


@router.post("/trials/{trial_id}/kill")
def kill_trial(trial_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    control.do(events.KillTrial(trial_id, clock.time()))
    return {}


@router.get("/trials/{trial_id}/checkpoints")
def checkpoints(trial_id: int, connection: Reading, who: AnyPrincipal, query: CheckpointList) -> Checkpoints:
    fact = visible_trial(connection, who, trial_id)
    return query.of(connection, queries.experiment(connection, fact.experiment_id), trial_id=trial_id)


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """The reports and checkpoints of a trial that a list is requested of."""

    order_by: OrderBy = ""
    only: Annotated[str, Query(alias="filter")] = ""
    group: str = ""
    metric_type: Annotated[str, Query(alias="metricType")] = ""
    batch_metrics: Annotated[bool, Query(alias="includeBatchMetrics")] = False
    no_deleted: Annotated[bool, Query(alias="removeDeletedCheckpoints")] = False
    sort_key: Annotated[str, Query(alias="sortKey")] = ""

    def groups(self) -> list[str]:
        if self.only in ("FILTER_OPTION_VALIDATION", "FILTER_OPTION_CHECKPOINT_OR_VALIDATION"):
            return ["validation"]
        if self.only == "FILTER_OPTION_CHECKPOINT":
            return []
        group = _group_of_type(self.metric_type) or self.group
        return [group] if group else ["training", "validation"]

    def checkpoint_states(self) -> list[CheckpointState]:
        if self.only == "FILTER_OPTION_VALIDATION":
            return []
        return [state for state in CheckpointState if state is not CheckpointState.DELETED or not self.no_deleted]


@router.get("/trials/{trial_id}/workloads")
def workloads(
    trial_id: int, connection: Reading, who: AnyPrincipal, query: Annotated[WorkloadQuery, Depends()], paging: ThePage
) -> Workloads:
    """Reports of training and validation, and checkpoints, by steps."""
    if query.sort_key not in ("", "batches"):
        raise NotSupportedYet(f"workloads sorted by {query.sort_key!r} are not supported yet; sort by batches")
    visible_trial(connection, who, trial_id)
    rows, total, begin = queries.workloads(
        connection,
        trial_id,
        groups=query.groups(),
        checkpoint_states=query.checkpoint_states(),
        descending=query.order_by == "ORDER_BY_DESC",
        page=paging.page,
    )
    items = [_workload(fact, query.batch_metrics) for fact in rows]
    return Workloads(workloads=items, pagination=paging.pagination(total, begin, len(items)))


def _workload(fact: facts.Metric | facts.Checkpoint, batch_metrics: bool) -> Workload:
    if isinstance(fact, facts.Checkpoint):
        return Workload(checkpoint=CheckpointWorkload.of(fact))
    report = MetricsWorkload.of(fact, batch_metrics)
    return Workload(validation=report) if fact.group == "validation" else Workload(training=report)


# --- its logs


@router.get("/trials/{trial_id}/logs")
def trial_logs(
    trial_id: int,
    installation: TheInstallation,
    store: TheStore,
    connection: Reading,
    who: AnyPrincipal,
    query: Filtered,
) -> StreamingResponse:
    """Lines of all attempts in order; with ``follow`` until the trial ends."""
    fact = visible_trial(connection, who, trial_id)
    return stream(TaskLog(installation, store, task_id(fact.experiment_id, trial_id), trial_id), query)


@router.get("/trials/{trial_id}/logs/fields")
def trial_log_fields(
    trial_id: int,
    installation: TheInstallation,
    store: TheStore,
    connection: Reading,
    who: AnyPrincipal,
    follow: bool = False,
) -> StreamingResponse:
    fact = visible_trial(connection, who, trial_id)
    return fields(TaskLog(installation, store, task_id(fact.experiment_id, trial_id), trial_id), follow=follow)
