"""Experiments."""

from __future__ import annotations

import contextlib
import time as clock
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import NotFound, NotSupportedYet, Refused, SchedulerUnavailable
from dethpc.master.durable import contexts
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import NewExperiment
from dethpc.master.http import streams
from dethpc.master.http.access import (
    AnyPrincipal,
    Limit,
    MayCreate,
    Offset,
    OrderBy,
    Owner,
    Reading,
    SortBy,
    TheCluster,
    TheControl,
    TheCreator,
    TheInstallation,
    ThePolicies,
    TheStore,
    may_see_experiment,
    order,
)
from dethpc.master.http.auth import Forbidden
from dethpc.master.http.models import Pagination, names_of_states, page, time
from dethpc.master.http.nouns import jobs
from dethpc.master.http.nouns.checkpoint_lists import CheckpointList
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import experiment as wire
from dethpc.master.http.wire.checkpoint import Checkpoints
from dethpc.master.http.wire.trial import Trial, Trials
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.state import queries
from dethpc.state.queries import ExperimentFigures, ExperimentFilter, Order
from dethpc.state.store import SqlStore

router = new_router(prefix="/api/v1", tags=["experiments"])


def one(connection: Connection, experiment_id: int) -> wire.Experiment:
    """Raises: NotFound."""
    fact = queries.experiment(connection, experiment_id)
    figures = queries.experiment_figures(connection, [experiment_id], trial_ids=True)
    return wire.Experiment.of(fact, figures[experiment_id])


# --- lists


@router.get("/experiments")
def list_experiments(
    connection: Reading,
    who: Owner,
    limit: Limit = 100,
    offset: Offset = 0,
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    archived: bool | None = None,
    states: Annotated[tuple[str, ...], Query()] = (),
    labels: Annotated[tuple[str, ...], Query()] = (),
    name: str | None = None,
    description: str | None = None,
    users: Annotated[list[str] | None, Query()] = None,
    user_ids: Annotated[list[int] | None, Query(alias="userIds")] = None,
    project_id: Annotated[int | None, Query(alias="projectId")] = None,
    trial_data: Annotated[bool, Query(alias="showTrialData", description="It is always shown.")] = True,
    ids: Annotated[list[int] | None, Query(alias="experimentIdFilter.incl")] = None,
    not_ids: Annotated[tuple[int, ...], Query(alias="experimentIdFilter.notIn")] = (),
    id_gt: Annotated[int | None, Query(alias="experimentIdFilter.gt")] = None,
    id_gte: Annotated[int | None, Query(alias="experimentIdFilter.gte")] = None,
    id_lt: Annotated[int | None, Query(alias="experimentIdFilter.lt")] = None,
    id_lte: Annotated[int | None, Query(alias="experimentIdFilter.lte")] = None,
) -> wire.Experiments:
    low = [bound for bound in (id_gte, None if id_gt is None else id_gt + 1) if bound is not None]
    high = [bound for bound in (id_lte, None if id_lt is None else id_lt - 1) if bound is not None]
    if user_ids is not None:  # the owner has the id 1, and there is nobody else
        users = [*(users or []), *([who.owner] if 1 in user_ids else [])]
    wanted = ExperimentFilter(
        archived=archived,
        states=frozenset(names_of_states(states)),
        labels=labels,
        name=name,
        description=description,
        owners=users,
        ids=ids,
        not_ids=not_ids,
        at_least=max(low, default=None),
        at_most=min(high, default=None),
        project_id=project_id,
    )
    # Here, and only here, a limit of 0 means the default.
    asked = page(offset, limit or 100)
    found, total, begin = queries.list_experiments(connection, wanted, order(sort_by, order_by), asked)
    figures = queries.experiment_figures(connection, [fact.id for fact in found])
    items = [wire.Experiment.of(fact, figures[fact.id]) for fact in found]
    return wire.Experiments(experiments=items, pagination=Pagination.of(total, begin, limit, len(items)))


@router.post("/experiments-search")
def search_experiments(request: wire.SearchRequest, connection: Reading, who: Owner) -> wire.SearchAnswer:
    """Sorting by one column; filters come with the WebUI's table."""
    if request.filter:
        raise NotSupportedYet("filters in experiments-search are not supported yet; use GET /api/v1/experiments")
    column, _, direction = (request.sort or "id=desc").split(",")[0].partition("=")
    keys = {"startTime": "start_time", "endTime": "end_time", "numTrials": "num_trials", "forkedFrom": "forked_from"}
    keys |= {
        "resourcePool": "resource_pool",
        "searcherMetricsVal": "searcher_metric_val",
        "checkpointSize": "checkpoint_size",
    }
    wanted = ExperimentFilter(project_id=request.project_id)
    limit = request.limit or 100
    sorting = Order(keys.get(column, column), direction == "desc")
    found, total, begin = queries.list_experiments(connection, wanted, sorting, page(request.offset or 0, limit))
    figures = queries.experiment_figures(connection, [fact.id for fact in found])
    ids = [figure.best_trial for figure in figures.values() if figure.best_trial is not None]
    best = queries.trials_by_id(connection, ids)
    best_figures = queries.trial_figures(connection, best)
    trials = {fact.experiment_id: Trial.of(fact, best_figures[fact.id]) for fact in best}
    items = [
        wire.Found(experiment=wire.Experiment.of(fact, figures[fact.id]), best_trial=trials.get(fact.id))
        for fact in found
    ]
    return wire.SearchAnswer(experiments=items, pagination=Pagination.of(total, begin, limit, len(items)))


@router.get("/experiment/labels", name="labels_in_use")
@router.get("/experiments/labels")
def all_labels(
    connection: Reading, who: Owner, project_id: Annotated[int | None, Query(alias="projectId")] = None
) -> wire.Labels:
    """Labels in use, the most popular first."""
    return wire.Labels(labels=queries.labels(connection, project_id))


@router.get("/experiments/metrics-stream/metric-names")
def metric_names(
    connection: Reading,
    who: Owner,
    ids: Annotated[list[int], Query()],
    period: Annotated[int, Query(alias="periodSeconds", description="There is one answer: the names so far.")] = 0,
) -> StreamingResponse:
    searcher = sorted({queries.experiment(connection, id).metric for id in ids} - {""})
    names = queries.metric_names(connection, ids)
    answer = wire.MetricNames(
        searcher_metrics=searcher,
        training_metrics=[name for group, name in names if group == "training"],
        validation_metrics=[name for group, name in names if group == "validation"],
        metric_names=[wire.MetricIdentifier(group=group, name=name) for group, name in names],
    )

    async def stream() -> AsyncIterator[bytes]:
        yield streams.line(answer)

    return streams.ndjson(stream())


# --- create


def launch_warnings(cluster: ClusterView, fact: facts.Experiment) -> list[str]:
    """What Determined calls what may keep its trials from starting."""
    try:
        fits = max((pool.slots for pool in cluster.pools() if pool.name == fact.pool), default=None)
    except SchedulerUnavailable:
        return []  # the experiment is there all the same
    return ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"] if fits is not None and fact.slots_per_trial > fits else []


@router.get("/contexts/{digest}")
def known_context(digest: str, installation: TheInstallation, who: Owner) -> dict[str, Any]:
    """Ours: whether the files of a context directory are here already, so that creating needs only their digest. Else 404."""
    contexts.known(installation.home, digest)
    return {}


@router.post("/experiments")
def create_experiment(
    request: wire.CreateRequest,
    store: TheStore,
    creator: TheCreator,
    control: TheControl,
    cluster: TheCluster,
    installation: TheInstallation,
    who: Owner,
    may_create: MayCreate,
) -> wire.Created:
    """Create an experiment, or with ``validateOnly`` only say what its config would be. A fork that brings no files has those
    of its parent."""
    if not may_create and not request.validate_only:
        raise Forbidden("a page has to ask for the password or a code before it creates an experiment")
    if request.unmanaged:
        fact = creator.create_unmanaged(who.owner, request.config)
        with store.read() as connection:
            return wire.Created(experiment=one(connection, fact.id), config=fact.config)
    sent = request.model_definition or []
    if request.context_digest:
        files = contexts.known(installation.home, request.context_digest)
    else:
        files = contexts.pack(sent)
    if request.parent_id and not sent and not request.context_digest:
        with contextlib.suppress(NotFound):  # a parent that trains elsewhere has none
            files = creator.context(request.parent_id)
    new = NewExperiment(
        request.config,
        files,
        request.activate is not False,
        parent_id=request.parent_id or None,
        project_id=request.project_id or None,
        validate_only=bool(request.validate_only),
        template=request.template or None,
        environment=contexts.decoded("environment", request.environment) if request.environment else None,
    )
    fact, told = creator.create(who.owner, new)
    answer = wire.Experiment.of(fact, ExperimentFigures())
    if not request.validate_only:
        contexts.remember(installation.home, sent, fact.context_sha256)
        with store.read() as connection:
            answer = one(connection, fact.id)
    return wire.Created(
        experiment=answer,
        config=fact.config,
        warnings=launch_warnings(cluster, fact),
        notes=[*told.notes, *([cluster.notice] if cluster.notice else [])],
        config_warnings=told.of_config,
        environment=wire.JobEnvironment.of(control.environment(fact), control.image(fact)),
    )


# --- one experiment


@router.get("/experiments/{experiment_id}")
def get_experiment(
    experiment_id: int, control: TheControl, connection: Reading, who: AnyPrincipal
) -> wire.ExperimentAnswer:
    may_see_experiment(who, experiment_id)
    fact = queries.experiment(connection, experiment_id)
    figures = queries.experiment_figures(connection, [experiment_id], trial_ids=True)[experiment_id]
    return wire.ExperimentAnswer(
        experiment=wire.Experiment.of(fact, figures),
        config=fact.config,
        job_summary=jobs.summary(control, connection, fact),
        environment=wire.JobEnvironment.of(control.environment(fact), control.image(fact)),
    )


def _change(control: Control, experiment_id: int, changes: ExperimentChanges) -> None:
    control.do(events.ChangeExperiment(experiment_id, changes, clock.time()))


@router.patch("/experiments/{experiment_id}")
def patch(
    experiment_id: int,
    request: wire.ExperimentPatch,
    store: TheStore,
    control: TheControl,
    policies: ThePolicies,
    who: Owner,
) -> wire.ExperimentAnswer:
    """Set the fields that the request holds."""
    if request.checkpoint_storage is not None:
        policies.set(experiment_id, request.checkpoint_storage.model_dump(exclude_none=True))
    given = request.model_dump(include={"name", "description", "notes", "labels"}, exclude_none=True)
    if request.resources is not None:
        resources = request.resources.model_dump(exclude_unset=True)
        # Only max_slots may be taken back (null); clients send the others as null when they do not mean them.
        given |= {name: value for name, value in resources.items() if value is not None or name == "max_slots"}
        if len(resources) > 1 and resources.get("max_slots", 0) is None:
            given.pop("max_slots")
    if given.get("name", "x").strip() == "":
        with store.read() as connection:
            if queries.experiment(connection, experiment_id).name.strip():
                raise Refused("the name of an experiment cannot be empty")
        del given["name"]  # clients send back what they read: an earlier release gave none to those without
    if "max_slots" in given:
        control.allow_slots(given["max_slots"])
    if given:
        _change(control, experiment_id, ExperimentChanges(**given))
    with store.read() as connection:
        return wire.ExperimentAnswer(experiment=one(connection, experiment_id))


@router.put("/experiments/{experiment_id}/labels/{label:path}")
def add_label(experiment_id: int, label: str, store: TheStore, control: TheControl, who: Owner) -> wire.Labels:
    return _set_labels(store, control, experiment_id, lambda labels: labels if label in labels else [*labels, label])


@router.delete("/experiments/{experiment_id}/labels/{label:path}")
def remove_label(experiment_id: int, label: str, store: TheStore, control: TheControl, who: Owner) -> wire.Labels:
    return _set_labels(store, control, experiment_id, lambda labels: [known for known in labels if known != label])


def _set_labels(store: SqlStore, control: Control, experiment_id: int, change: Any) -> wire.Labels:
    with store.read() as connection:
        labels = queries.experiment(connection, experiment_id).labels
    return wire.Labels(labels=labels if change(labels) == labels else control.set_labels(experiment_id, change))


# --- what belongs to it


@router.get("/experiments/{experiment_id}/trials")
def trials(
    experiment_id: int,
    connection: Reading,
    who: AnyPrincipal,
    limit: Limit = 0,
    offset: Offset = 0,
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    states: Annotated[tuple[str, ...], Query()] = (),
) -> Trials:
    may_see_experiment(who, experiment_id)
    queries.experiment(connection, experiment_id)
    sorting = order("" if sort_by == "SORT_BY_LOG_RETENTION_DAYS" else sort_by, order_by)
    wanted = frozenset(names_of_states(states))
    found, total, begin = queries.list_trials(connection, experiment_id, wanted, sorting, page(offset, limit))
    figures = queries.trial_figures(connection, found)
    items = [Trial.of(fact, figures[fact.id]) for fact in found]
    return Trials(trials=items, pagination=Pagination.of(total, begin, limit, len(items)))


@router.get("/experiments/{experiment_id}/checkpoints")
def checkpoints(experiment_id: int, connection: Reading, who: AnyPrincipal, wanted: CheckpointList) -> Checkpoints:
    may_see_experiment(who, experiment_id)
    return wanted.of(connection, queries.experiment(connection, experiment_id), experiment_id=experiment_id)


@router.get("/experiments/{experiment_id}/validation-history")
def validation_history(experiment_id: int, connection: Reading, who: AnyPrincipal) -> wire.ValidationHistory:
    """Each validation that was the best of the experiment until then."""
    may_see_experiment(who, experiment_id)
    history = queries.validation_history(connection, experiment_id)
    return wire.ValidationHistory(
        validation_history=[
            wire.Validation(trial_id=trial, end_time=time(at), searcher_metric=value) for trial, at, value in history
        ]
    )


@router.get("/experiments/{experiment_id}/searcher/best_searcher_validation_metric")
def best_metric(experiment_id: int, connection: Reading, who: AnyPrincipal) -> wire.BestMetric:
    may_see_experiment(who, experiment_id)
    queries.experiment(connection, experiment_id)
    best = queries.best_trials(connection, [experiment_id]).get(experiment_id)
    if best is None:
        raise NotFound(f"no trial of experiment {experiment_id} has reported the searcher's metric yet")
    return wire.BestMetric(metric=best[1])


@router.get("/experiments/{experiment_id}/searcher/progress")
def searcher_progress(experiment_id: int, connection: Reading, who: AnyPrincipal) -> wire.SearcherProgress:
    """Ours: how far the search is."""
    may_see_experiment(who, experiment_id)
    fact = queries.experiment(connection, experiment_id)
    states = queries.states_of_trials(connection, experiment_id)
    by_state = {f"STATE_{name}": count for name, count in states.items()}
    return wire.SearcherProgress(progress=fact.progress, trials=sum(states.values()), trials_by_state=by_state)
