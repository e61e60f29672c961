"""Trials: their state, workloads and metrics."""

from __future__ import annotations

import contextlib
import time as clock
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.domain.ids import task_id
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.errors import NotFound, NotSupportedYet
from dethpc.insight import usage
from dethpc.master.http import streams
from dethpc.master.http.access import (
    AnyPrincipal,
    Limit,
    Offset,
    OrderBy,
    Owner,
    Reading,
    TheCluster,
    TheControl,
    TheInstallation,
    TheStore,
    may_see_experiment,
)
from dethpc.master.http.models import Pagination, page
from dethpc.master.http.nouns.checkpoint_lists import CheckpointList
from dethpc.master.http.nouns.logs import Filtered, fields, stream
from dethpc.master.http.nouns.series import drawn
from dethpc.master.http.router import new_router
from dethpc.master.http.wire.checkpoint import Checkpoints
from dethpc.master.http.wire.trial import (
    CheckpointWorkload,
    ComparedTrial,
    Comparison,
    MetricsReport,
    MetricsReports,
    MetricsWorkload,
    RunOfJob,
    RunsOfJob,
    Trial,
    TrialAnswer,
    TrialRun,
    Workload,
    Workloads,
    trial_state,
)
from dethpc.master.installation import Installation
from dethpc.state import queries
from dethpc.state.store import SqlStore

router = new_router(prefix="/api/v1", tags=["trials"])

_REPORTS = 500  # in one message of a stream
_RUNS = 20  # of a trial, in its own answer


def visible(connection: Connection, who: Any, trial_id: int) -> facts.Trial:
    """Raises: NotFound, Forbidden."""
    fact = queries.trial(connection, trial_id)
    may_see_experiment(who, fact.experiment_id)
    return fact


# --- metrics: before the routes of one trial, whose paths would match these too


@router.get("/trials/time-series")
def time_series(
    connection: Reading,
    who: Owner,
    trial_ids: Annotated[list[int], Query(alias="trialIds")],
    names: Annotated[tuple[str, ...], Query(alias="metricNames")] = (),
    ids: Annotated[tuple[str, ...], Query(alias="metricIds")] = (),
    group: str = "",
    metric_type: Annotated[str, Query(alias="metricType")] = "",
    points: Annotated[int, Query(alias="maxDatapoints")] = 0,
    start: Annotated[int | None, Query(alias="startBatches")] = None,
    end: Annotated[int | None, Query(alias="endBatches")] = None,
    with_figures: Annotated[
        bool, Query(alias="figures", description="Ours: with each trial's summaries and sizes.")
    ] = True,
) -> Comparison:
    """Metrics over steps; with ``maxDatapoints`` thinned out so that the drawn line keeps its shape."""
    wanted = [tuple(id.split(".", 1)) for id in ids if "." in id]  # group.name
    if not group and metric_type in ("METRIC_TYPE_TRAINING", "METRIC_TYPE_VALIDATION"):
        group = metric_type.removeprefix("METRIC_TYPE_").lower()
    groups = [group] if group else sorted({pair[0] for pair in wanted})
    wanted_names = frozenset([*names, *(pair[1] for pair in wanted)])
    found = queries.trials_by_id(connection, trial_ids)
    figures = queries.trial_figures(connection, found if with_figures else ())
    reports = queries.series(connection, [fact.id for fact in found], groups, start, end or None)
    curves = {id: drawn(own, wanted_names, points) for id, own in groupby(reports, key=attrgetter("trial_id"))}
    none = queries.TrialFigures()
    answer = [
        ComparedTrial(trial=Trial.of(fact, figures.get(fact.id, none)), metrics=curves.get(fact.id, []))
        for fact in found
    ]
    return Comparison(trials=answer)


def _reports(store: SqlStore, who: Any, trial_ids: list[int], group: str | None) -> StreamingResponse:
    with store.read() as connection:
        for trial_id in trial_ids:
            visible(connection, who, trial_id)

    def batches() -> Iterator[MetricsReports]:
        for trial_id in trial_ids:
            after = 0
            while True:
                # A short read for each message: a slow client must not hold an old state of the database open.
                with store.read() as connection:
                    found = queries.metrics_after(connection, trial_id, group, after, _REPORTS)
                if found:
                    after = found[-1][0]
                    yield MetricsReports(metrics=[MetricsReport.of(id, fact) for id, fact in found])
                if len(found) < _REPORTS:
                    break

    async def lines() -> AsyncIterator[bytes]:
        async for chunk in streams.in_thread(batches(), 1):
            for batch in chunk:
                yield streams.line(batch)

    return streams.ndjson(lines())


TrialIds = Annotated[list[int], Query(alias="trialIds")]


@router.get("/trials/metrics/trial_metrics")
def metrics(store: TheStore, who: AnyPrincipal, trial_ids: TrialIds, group: str = "") -> StreamingResponse:
    """Reports of a group, or of every group, in order."""
    return _reports(store, who, trial_ids, group or None)


@router.get("/trials/metrics/training_metrics")
def training_metrics(store: TheStore, who: AnyPrincipal, trial_ids: TrialIds) -> StreamingResponse:
    return _reports(store, who, trial_ids, "training")


@router.get("/trials/metrics/validation_metrics")
def validation_metrics(store: TheStore, who: AnyPrincipal, trial_ids: TrialIds) -> StreamingResponse:
    return _reports(store, who, trial_ids, "validation")


# --- one trial


@router.get("/trials/{trial_id}")
def get_trial(trial_id: int, connection: Reading, installation: TheInstallation, who: AnyPrincipal) -> TrialAnswer:
    fact = visible(connection, who, trial_id)
    runs = queries.runs_of_trial(connection, trial_id)[-_RUNS:]
    before, after = queries.neighbours_of_trial(connection, fact)
    return TrialAnswer(
        trial=Trial.of(fact, queries.trial_figures(connection, [fact])[trial_id]),
        runs=[_run(installation, run) for run in runs],
        previous_trial_id=before,
        next_trial_id=after,
    )


def _run(installation: Installation, run: facts.Run) -> TrialRun:
    directory = installation.home.kept(run.id)
    uses = []
    if run.attempt >= 0:
        with contextlib.suppress(OSError):
            uses = directory.attempt(run.attempt).node_uses(len(run.nodes))
    return TrialRun.of(run, str(directory.path), usage.of_nodes(uses))


@router.get("/scheduler-jobs/{job_id}")
def runs_of_job(
    job_id: str, connection: Reading, installation: TheInstallation, cluster: TheCluster, who: Owner
) -> RunsOfJob:
    """Ours: which runs this job of the scheduler executes or executed. An element of a job array is found by its id, such as 28_3,
    and by the number of its own that Slurm gives it. NotFound where none is known."""
    found = queries.runs_of_job(connection, job_id)
    if not found and job_id.isdecimal() and (element := cluster.element(job_id)) is not None:
        found = queries.runs_of_job(connection, element)
    if not found:
        raise NotFound(f"job {job_id} is not a job of this installation, or its experiment was deleted")
    return RunsOfJob(job_id=job_id, runs=[_run_of_job(connection, installation, *each) for each in found])


def _run_of_job(connection: Connection, installation: Installation, run: facts.Run, task: facts.Task) -> RunOfJob:
    trial = None if task.trial_id is None else queries.trial(connection, task.trial_id)
    experiment = None if trial is None else queries.experiment(connection, trial.experiment_id)
    return RunOfJob(
        run=_run(installation, run),
        task_kind=task.kind.value,
        task_name=task.name,
        trial_id=task.trial_id,
        trial_state="" if trial is None else trial_state(trial, run.state is RunState.RUNNING),
        trial_reason="" if trial is None else trial.reason,
        experiment_id=task.experiment_id,
        experiment_name="" if experiment is None else experiment.name,
    )


@router.post("/trials/{trial_id}/kill")
def kill_trial(trial_id: int, control: TheControl, who: Owner) -> dict[str, Any]:
    control.do(events.KillTrial(trial_id, clock.time()))
    return {}


@router.get("/trials/{trial_id}/checkpoints")
def checkpoints(trial_id: int, connection: Reading, who: AnyPrincipal, wanted: CheckpointList) -> Checkpoints:
    fact = visible(connection, who, trial_id)
    return wanted.of(connection, queries.experiment(connection, fact.experiment_id), trial_id=trial_id)


@router.get("/trials/{trial_id}/workloads")
def workloads(
    trial_id: int,
    connection: Reading,
    who: AnyPrincipal,
    limit: Limit = 0,
    offset: Offset = 0,
    order_by: OrderBy = "",
    only: Annotated[str, Query(alias="filter")] = "",
    group: str = "",
    metric_type: Annotated[str, Query(alias="metricType")] = "",
    batch_metrics: Annotated[bool, Query(alias="includeBatchMetrics")] = False,
    no_deleted: Annotated[bool, Query(alias="removeDeletedCheckpoints")] = False,
    sort_key: Annotated[str, Query(alias="sortKey")] = "",
) -> Workloads:
    """Reports of training and validation, and checkpoints, by steps."""
    if sort_key not in ("", "batches"):
        raise NotSupportedYet(f"workloads sorted by {sort_key!r} are not supported yet; sort by batches")
    visible(connection, who, trial_id)
    groups = ["training", "validation"] if not group else [group]
    if metric_type in ("METRIC_TYPE_TRAINING", "METRIC_TYPE_VALIDATION"):
        groups = [metric_type.removeprefix("METRIC_TYPE_").lower()]
    if only in ("FILTER_OPTION_VALIDATION", "FILTER_OPTION_CHECKPOINT_OR_VALIDATION"):
        groups = ["validation"]
    elif only == "FILTER_OPTION_CHECKPOINT":
        groups = []
    found, total, begin = queries.workloads(
        connection,
        trial_id,
        groups=groups,
        with_checkpoints=only != "FILTER_OPTION_VALIDATION",
        deleted=not no_deleted,
        descending=order_by == "ORDER_BY_DESC",
        page=page(offset, limit),
    )
    items = [_workload(fact, batch_metrics) for fact in found]
    return Workloads(workloads=items, pagination=Pagination.of(total, begin, limit, len(items)))


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
    asked: Filtered,
) -> StreamingResponse:
    """Lines of all attempts in order; with ``follow`` until the trial ends."""
    fact = visible(connection, who, trial_id)
    return stream(installation, store, trial_id, task_id(fact.experiment_id, trial_id), asked)


@router.get("/trials/{trial_id}/logs/fields")
def trial_log_fields(
    trial_id: int,
    installation: TheInstallation,
    store: TheStore,
    connection: Reading,
    who: AnyPrincipal,
    follow: bool = False,
) -> StreamingResponse:
    visible(connection, who, trial_id)
    return fields(installation, store, trial_id, follow=follow)
