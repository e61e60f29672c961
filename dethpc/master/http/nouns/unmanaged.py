"""Routes for training that reports by the API alone: scripts outside the cluster, and what runs keep in no journal."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time as clock
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import Body, Depends
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection

from dethpc.domain.facts import Row
from dethpc.domain.reports import ReportKind
from dethpc.domain.roles import Role
from dethpc.domain.states import TaskKind
from dethpc.domain.trial_config import TrialConfig
from dethpc.engine import events
from dethpc.engine.changes import TrialChanges
from dethpc.errors import AlreadyExists, NotFound, Refused
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import NewExperiment
from dethpc.master.experiments.unmanaged import Done, Unmanaged, states
from dethpc.master.http.access import (
    AnyPrincipal,
    Editor,
    EditorSomewhere,
    Reading,
    TheControl,
    TheCreator,
    TheRecords,
    TheStore,
    TheUnmanaged,
    TheWorkerReports,
    ViewerSomewhere,
    visible_trial,
    whole,
)
from dethpc.master.http.auth import Forbidden, Principal
from dethpc.master.http.models import Plain, Shallow, Wire
from dethpc.master.http.nouns.checkpoints import storage_id
from dethpc.master.http.nouns.experiments import CreateRequest, ExperimentAnswer, one, template_and_project
from dethpc.master.http.nouns.trials import Trial
from dethpc.master.http.router import new_router
from dethpc.master.watching.worker_reports import WorkerReports
from dethpc.state import queries
from dethpc.state.store import ReadStore


class NewTrial(Wire):
    experiment_id: int = 0
    hparams: Annotated[dict[str, Any] | None, Shallow] = None
    unmanaged: bool | None = None


class PutTrial(Wire):
    create_trial_request: NewTrial
    external_trial_id: str = ""


class BeginRequest(Wire):
    trial_id: int | None = None
    resume: bool | None = None


class Begun(Wire):
    trial_run_id: int
    latest_checkpoint: str | None
    steps_completed: int


class TrialPatch(Wire):
    state: str = ""


class TrialAnswer(Wire):
    trial: Trial


class ReportedMetrics(Wire):
    avg_metrics: Annotated[dict[str, Any] | None, Shallow] = None
    batch_metrics: Annotated[list[Any] | None, Shallow] = None


class TrialMetrics(Wire):
    """One report. Profilers give no ``steps_completed``: theirs go with the time."""

    metrics: ReportedMetrics
    trial_run_id: int | None = None
    steps_completed: int | None = None
    report_time: str | None = None


class MetricsRequest(Wire):
    metrics: TrialMetrics
    group: str = "training"


class Progress(Wire):
    progress: float = 0.0


class EarlyExit(Wire):
    reason: str = "EXITED_REASON_UNSPECIFIED"


class Status(Wire):
    state: str = ""


class PrepareRequest(Wire):
    run_id: int = 0


class Prepared(Wire):
    storage_id: int | None = None


class Metadata(Wire):
    metadata: Annotated[Plain, Shallow] = None


class TaskLog(Wire):
    """A line of output. Determined spells these names with underscores."""

    task_id: str = ""
    rank: str | int | None = None
    log: str = ""

    model_config = {**Wire.model_config, "alias_generator": None}


class TaskLogOfV1(Wire):
    """The same as API v1 spells it."""

    task_id: str = ""
    rank_id: int | None = None
    log: str = ""


class TaskLogsOfV1(Wire):
    logs: list[TaskLogOfV1] = []


router = new_router(prefix="/api/v1", tags=["unmanaged"])
logs = new_router(tags=["unmanaged"])


def _trial(connection: Connection, trial_id: int) -> Trial:
    fact = queries.trial(connection, trial_id)
    return Trial.of(fact, queries.trial_figures(connection, [fact])[trial_id])


# --- experiments and trials


@router.put("/experiments/by-external-id/{external_id:path}")
def put_experiment(
    external_id: str,
    request: CreateRequest,
    store: TheStore,
    creator: TheCreator,
    records: TheRecords,
    who: EditorSomewhere,
) -> ExperimentAnswer:
    """The unmanaged experiment of this external id, created where there is none."""
    with store.read() as connection:
        fact = queries.experiment_of_external_id(connection, external_id)
    if fact is None:
        visible = records.within(who.workspaces_as(Role.VIEWER))
        template, project, _ = template_and_project(records, visible, request, None)
        who.must_be(Role.EDITOR, project.workspace_id)
        new = NewExperiment(request.config, project_id=project.id, template=template, user_id=who.user_id)
        fact = creator.create_unmanaged(who.owner, new, external_id)
    with store.read() as connection:
        if not queries.experiments_by_id(connection, [fact.id]):
            raise AlreadyExists(f"the external id {external_id!r} is taken in another workspace; choose another one")
        return ExperimentAnswer(experiment=one(connection, fact.id), config=fact.config)


@router.post("/trials")
def create_trial(request: NewTrial, store: TheStore, unmanaged: TheUnmanaged, who: EditorSomewhere) -> TrialAnswer:
    return _new_trial(store, unmanaged, request, None)


@router.put("/trials")
def put_trial(request: PutTrial, store: TheStore, unmanaged: TheUnmanaged, who: EditorSomewhere) -> TrialAnswer:
    """The trial of this external id in its experiment, created where there is none."""
    return _new_trial(store, unmanaged, request.create_trial_request, request.external_trial_id)


@router.get("/trials/by-external-id/{ids:path}")
def trial_by_external_id(ids: str, connection: Reading, who: ViewerSomewhere) -> TrialAnswer:
    """``ids``: EXPERIMENT/TRIAL, as their scripts call them. Either may hold a "/" itself."""
    for between in re.finditer("/", ids):
        experiment = queries.experiment_of_external_id(connection, ids[: between.start()])
        fact = experiment and queries.trial_of_external_id(connection, experiment.id, ids[between.end() :])
        if fact is not None:
            return TrialAnswer(trial=_trial(connection, fact.id))
    raise NotFound(f"no experiment and trial with the external ids {ids!r}")


def _new_trial(store: ReadStore, unmanaged: Unmanaged, request: NewTrial, external_id: str | None) -> TrialAnswer:
    with store.read() as connection:
        queries.experiment(connection, request.experiment_id)
    fact = unmanaged.trial(request.experiment_id, request.hparams or {}, external_id)
    with store.read() as connection:
        return TrialAnswer(trial=_trial(connection, fact.id))


@router.post("/trials/{trial_id}/start")
def start_trial(trial_id: int, request: BeginRequest, store: TheStore, unmanaged: TheUnmanaged, who: Editor) -> Begun:
    run = unmanaged.begin(trial_id, resume=bool(request.resume))
    with store.read() as connection:
        attempt = queries.attempt(connection, run.id, 0)
    return Begun(trial_run_id=run.number, latest_checkpoint=attempt.resumed_from, steps_completed=attempt.resumed_steps)


@router.patch("/trials/{trial_id}")
def patch_trial(
    trial_id: int, request: TrialPatch, store: TheStore, unmanaged: TheUnmanaged, who: Editor
) -> TrialAnswer:
    """The state of an unmanaged trial; without one, a sign of life."""
    unmanaged.state(trial_id, states(request.state))
    with store.read() as connection:
        return TrialAnswer(trial=_trial(connection, trial_id))


@router.post("/runs/start")
def prepare(request: PrepareRequest, connection: Reading, who: AnyPrincipal) -> Prepared:
    """Determined's clients announce the reports of a trial, which they call a run here, and learn where its checkpoints go."""
    if not request.run_id:
        return Prepared()
    fact = visible_trial(connection, who, request.run_id)
    config = TrialConfig.from_json(queries.experiment(connection, fact.experiment_id).config)
    return Prepared(storage_id=storage_id(config.checkpoint_storage))


# --- reports


class Reports:
    """Where reports go that come over HTTP. An unmanaged trial's are its chief's, and go into its run's journal. Of other trials,
    metrics go beside the chief's journal, and the rest is said of the trial itself."""

    def __init__(
        self, store: ReadStore, unmanaged: Unmanaged, worker_reports: WorkerReports, control: Control, who: Principal
    ) -> None:
        self._store, self._unmanaged, self._worker_reports, self._control = store, unmanaged, worker_reports, control
        self._who = who

    def are_unmanaged(self, trial_id: int) -> bool:
        """Raises NotFound, and Forbidden to a run that speaks for another trial."""
        if self._who.is_run and self._who.trial_id != trial_id:
            raise Forbidden("a run's token does not allow access to another trial")
        kind = self._unmanaged.kind_in_memory(trial_id)
        if kind is None:
            with self._store.read() as connection:
                trial = queries.trial(connection, trial_id)
                kind = queries.experiment(connection, trial.experiment_id).kind
        return kind is TaskKind.UNMANAGED_TRIAL

    def take(self, trial_id: int, kind: ReportKind, data: dict[str, Any], event: events.Event) -> None:
        """``event`` says the same of a trial that is not unmanaged."""
        if self.are_unmanaged(trial_id):
            self._unmanaged.report(trial_id, kind, data)
        else:
            self._control.do(event)

    async def take_metrics(self, trial_id: int, group: str, report: TrialMetrics) -> dict[str, Any]:
        """A report waits in a thread while it is written, and in none while it is committed."""
        commit = await run_in_threadpool(self._begin, trial_id, group, report)
        if commit is not None:
            await asyncio.shield(asyncio.wrap_future(commit))
        return {}

    def _begin(self, trial_id: int, group: str, report: TrialMetrics) -> Future[list[Row]] | None:
        """None: it is taken in."""
        unmanaged = self.are_unmanaged(trial_id)
        if not group or "." in group:
            raise Refused(f"a group of metrics has a name without '.', not {group!r}")
        steps = report.steps_completed
        data: dict[str, Any] = {"group": group, "steps_completed": steps, "metrics": report.metrics.avg_metrics or {}}
        if report.metrics.batch_metrics:
            data["batch_metrics"] = report.metrics.batch_metrics
        if unmanaged:
            own_steps = {"steps_completed": self._unmanaged.steps(trial_id)} if steps is None else {}
            with contextlib.suppress(Done):
                kind, number = ReportKind.METRICS, report.trial_run_id or None
                return self._unmanaged.begin_report(trial_id, kind, {**data, **own_steps}, number)
        self._worker_reports.post(trial_id, data, report.trial_run_id, self._who.run_id)
        return None


async def _reports(
    store: TheStore, unmanaged: TheUnmanaged, worker_reports: TheWorkerReports, control: TheControl, who: AnyPrincipal
) -> Reports:
    return Reports(store, unmanaged, worker_reports, control, who)


TheReports = Annotated[Reports, Depends(_reports)]


@router.post("/trials/{trial_id}/metrics")
async def report_metrics(trial_id: int, request: MetricsRequest, reports: TheReports) -> dict[str, Any]:
    return await reports.take_metrics(trial_id, request.group, request.metrics)


@router.post("/trials/{trial_id}/training_metrics")
async def report_training(trial_id: int, request: TrialMetrics, reports: TheReports) -> dict[str, Any]:
    return await reports.take_metrics(trial_id, "training", request)


@router.post("/trials/{trial_id}/validation_metrics")
async def report_validation(trial_id: int, request: TrialMetrics, reports: TheReports) -> dict[str, Any]:
    return await reports.take_metrics(trial_id, "validation", request)


@router.post("/trials/{trial_id}/progress")
def report_progress(trial_id: int, request: Annotated[Progress | float, Body()], reports: TheReports) -> dict[str, Any]:
    value = request if isinstance(request, float) else request.progress
    if not 0 <= value <= 1 and not reports.are_unmanaged(trial_id):
        raise Refused(f"progress is a number from 0 to 1, not {value}")
    changed = events.DescribeTrial(trial_id, TrialChanges(progress=value), clock.time())
    reports.take(trial_id, ReportKind.PROGRESS, {"progress": value}, changed)
    return {}


@router.post("/trials/{trial_id}/early_exit")
def report_early_exit(trial_id: int, request: EarlyExit, reports: TheReports) -> dict[str, Any]:
    exited = events.EarlyExit(trial_id, request.reason, clock.time())
    reports.take(trial_id, ReportKind.EARLY_EXIT, {"reason": request.reason}, exited)
    return {}


@router.post("/trials/{trial_id}/runner/metadata")
def report_status(trial_id: int, request: Status, reports: TheReports) -> dict[str, Any]:
    changed = events.DescribeTrial(trial_id, TrialChanges(status=request.state), clock.time())
    reports.take(trial_id, ReportKind.STATUS, {"status": request.state}, changed)
    return {}


@router.get("/runs/{run_id}/metadata")
def get_metadata(run_id: int, connection: Reading, who: AnyPrincipal) -> Metadata:
    """Of a trial, which Determined calls a run here."""
    fact = visible_trial(connection, who, run_id)
    return Metadata(metadata=fact.metadata)


@router.post("/runs/{run_id}/metadata")
def set_metadata(
    run_id: int, request: Metadata, reports: TheReports, control: TheControl, unmanaged: TheUnmanaged, who: AnyPrincipal
) -> Metadata:
    if not isinstance(request.metadata, dict):
        raise Refused("metadata is an object of names and values")
    if reports.are_unmanaged(run_id) and not who.is_run and unmanaged.running(run_id):
        unmanaged.report(run_id, ReportKind.RUN_METADATA, {"metadata": request.metadata})
    else:
        control.do(events.DescribeTrial(run_id, TrialChanges(metadata=request.metadata), clock.time()))
    return request


# --- output


@logs.post("/task-logs")
def task_logs(lines: list[TaskLog], store: TheStore, unmanaged: TheUnmanaged, who: EditorSomewhere) -> dict[str, Any]:
    """Output of unmanaged trials, line by line; nothing is written where a line names a trial that is not there."""
    output = [
        (_trial_of(line), None if line.rank is None or line.rank == "" else whole(line.rank, "rank"), line.log)
        for line in lines
    ]
    with store.read() as connection:
        for trial_id in {trial_id for trial_id, _, _ in output}:
            queries.trial(connection, trial_id)
    for trial_id, rank, text in output:
        unmanaged.log(trial_id, rank, [text])
    return {}


def _trial_of(line: TaskLog) -> int:
    """Raises NotFound."""
    _, _, trial = line.task_id.rpartition(".")
    if not trial.isdecimal():
        raise NotFound(f"task {line.task_id} not found")
    return int(trial)


@router.post("/task/logs")
def task_logs_of_v1(
    request: TaskLogsOfV1, store: TheStore, unmanaged: TheUnmanaged, who: EditorSomewhere
) -> dict[str, Any]:
    """As ``/task-logs``."""
    lines = [TaskLog(task_id=one.task_id, rank=one.rank_id, log=one.log) for one in request.logs]
    return task_logs(lines, store, unmanaged, who)
