"""Routes and wire models of experiments: lists, creation, changes, and their trials and checkpoints."""

from __future__ import annotations

import contextlib
import time as clock
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Query
from pydantic import Field
from sqlalchemy import Connection

from dethpc.config.template import Template, laid_over, of_experiments
from dethpc.domain import facts
from dethpc.domain.environment import Environment
from dethpc.domain.records import Project
from dethpc.domain.roles import Role
from dethpc.domain.states import shown_as
from dethpc.domain.text import names
from dethpc.domain.trial_config import SearcherConfig
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import NotFound, Refused, SchedulerUnavailable
from dethpc.master.durable import contexts
from dethpc.master.durable.records import RecordReader, Records
from dethpc.master.experiments import config_policies, filing, templates
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import Creator, NewExperiment
from dethpc.master.experiments.policy import check_policy
from dethpc.master.http.access import (
    AnyPrincipal,
    Editor,
    EditorSomewhere,
    Limit,
    MayCreate,
    Offset,
    Reading,
    TheControl,
    TheOrder,
    ThePage,
    ThePolicies,
    TheRecords,
    TheServices,
    TheStore,
    ViewerSomewhere,
    VisibleRecords,
    may_see_experiment,
    order,
)
from dethpc.master.http.auth import Forbidden
from dethpc.master.http.models import (
    Float,
    Given,
    MaskedConfig,
    MaskedText,
    Pagination,
    Plain,
    UserText,
    Wire,
    names_of_states,
    page,
    time,
    time_or_none,
)
from dethpc.master.http.nouns import jobs
from dethpc.master.http.nouns.checkpoints import CheckpointList, Checkpoints
from dethpc.master.http.nouns.contexts import File
from dethpc.master.http.nouns.garbage import CheckpointPolicy
from dethpc.master.http.nouns.jobs import JobSummary
from dethpc.master.http.nouns.trials import Trial, Trials
from dethpc.master.http.router import new_router
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.rundir.home import Home
from dethpc.state import queries
from dethpc.state.queries import ExperimentFigures, ExperimentFilter
from dethpc.state.queries.users import UserName, users_among
from dethpc.state.store import ReadStore


def experiment_state(experiment: facts.Experiment, running: int) -> str:
    return f"STATE_{shown_as(experiment.state, running > 0)}"


class Experiment(Wire):
    id: int
    name: str
    description: str
    notes: str
    state: str
    archived: bool
    job_id: str
    username: str
    display_name: str
    user_id: int
    resource_pool: str
    start_time: str
    end_time: str | None
    duration: int
    progress: Float
    num_trials: int
    trial_ids: list[int]
    best_trial_id: int | None
    best_trial_searcher_metric: Float | None
    searcher_type: str
    searcher_metric: str
    checkpoint_count: int
    checkpoint_size: str | None
    model_definition_size: int | None = None
    forked_from: int | None
    parent_archived: bool | None = None
    project_id: int
    project_name: UserText
    project_owner_id: int
    workspace_id: int
    workspace_name: UserText
    unmanaged: bool
    external_experiment_id: str | None
    external_trial_id: str | None  # of its first trial that has one, in the answer about one experiment
    reason: str  # ours: why it is in this state, in words
    warning: str  # ours: what its trials report that its search can do nothing with
    held_slots: int | None  # ours: slots that its jobs hold now, also while they stop; None: none runs
    running_jobs: int = 0  # ours
    suspended_jobs: int = 0  # ours: those of them that the scheduler has suspended
    labels: list[UserText]
    config: MaskedConfig
    original_config: MaskedText
    hyperparameters: Plain

    @classmethod
    def of(cls, fact: facts.Experiment, figures: ExperimentFigures) -> Experiment:
        searcher = SearcherConfig.of(fact.config)
        return cls(
            **_fields_of(fact, figures),
            labels=fact.labels,
            config=fact.config,
            original_config=fact.original_config,
            hyperparameters=fact.config.get("hyperparameters") or {},
            searcher_type=searcher.name,
            searcher_metric=searcher.metric,
        )


def _fields_of(fact: facts.Experiment, figures: ExperimentFigures) -> dict[str, Any]:
    """What needs nothing of the configuration."""
    user = figures.user or UserName(fact.user_id, fact.owner, fact.owner)
    return {
        "id": fact.id,
        "name": fact.name,
        "description": fact.description,
        "notes": fact.notes,
        "state": experiment_state(fact, figures.running),
        "archived": fact.archived,
        "job_id": fact.queue_id,
        "username": user.name,
        "display_name": user.shown,
        "user_id": user.id,
        "resource_pool": fact.pool,
        "start_time": time(fact.created_at),
        "end_time": time_or_none(fact.ended_at),
        "duration": int(fact.duration(clock.time())),
        "progress": fact.progress,
        "num_trials": figures.trials,
        "trial_ids": figures.trial_ids,
        "best_trial_id": figures.best_trial,
        "best_trial_searcher_metric": figures.best_metric,
        "checkpoint_count": figures.checkpoints,
        "checkpoint_size": None if figures.checkpoint_bytes is None else str(figures.checkpoint_bytes),
        "forked_from": fact.parent_id,
        "project_id": fact.project_id,
        **figures.place._asdict(),
        "unmanaged": not fact.kind.submitted,
        "external_experiment_id": fact.external_id or None,
        "external_trial_id": figures.external_trial_id or None,
        "reason": fact.reason,
        "warning": fact.warning,
        "held_slots": figures.held_slots,
        "running_jobs": figures.running,
        "suspended_jobs": figures.suspended,
    }


class JobEnvironment(Wire):
    """Ours: what may be told of the environment of an experiment's jobs. Values of variables are secrets."""

    python: str  # the python3 that its shell found, "" when it found none
    packages: Plain  # frameworks there, name -> version
    source: str  # "shell", or "master" when the client sent none
    variables: int
    image: str = ""  # what they start from, whose python3 counts; "": without a container

    @classmethod
    def of(cls, environment: Environment | None, image: str) -> JobEnvironment | None:
        if environment is None:
            return None
        return cls(
            python=environment.python,
            packages=environment.packages,
            source=environment.source,
            variables=len(environment.variables),
            image=image,
        )


class ExperimentAnswer(Wire):
    experiment: Experiment
    config: MaskedConfig = None
    job_summary: JobSummary | None = None
    environment: JobEnvironment | None = None


class Experiments(Wire):
    experiments: list[Experiment]
    pagination: Pagination


class CreateRequest(Wire):
    config: str = ""
    model_definition: list[File] | None = None
    context_digest: str | None = None  # ours, in place of the files: GET contexts/DIGEST found them
    activate: bool | None = None
    validate_only: bool | None = None
    parent_id: int | None = None
    project_id: int | None = None
    template: str | None = None
    unmanaged: bool | None = None
    environment: str | None = None  # ours: base64 of `domain.environment`; None: the client knows of none


class Created(Wire):
    experiment: Experiment
    config: MaskedConfig
    warnings: list[str] = []
    notes: list[str] = []  # ours: what the owner should know, in words
    config_warnings: list[str] = []  # ours: what is older or without effect in the text of the configuration, in words
    environment: JobEnvironment | None = None


class ResourcesPatch(Wire):
    max_slots: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    weight: float | None = None
    priority: int | None = None


class ExperimentPatch(Wire):
    name: Given | None = None
    description: Given | None = None
    notes: Given | None = None
    labels: list[Given] | None = None
    resources: ResourcesPatch | None = None
    checkpoint_storage: CheckpointPolicy | None = None


class Labels(Wire):
    labels: list[UserText]


router = new_router(prefix="/api/v1", tags=["experiments"])


def one(connection: Connection, experiment_id: int) -> Experiment:
    """Raises: NotFound."""
    fact = queries.experiment(connection, experiment_id)
    figures = queries.experiment_figures(connection, [experiment_id], trial_ids=True)
    return Experiment.of(fact, figures[experiment_id])


# --- lists


@dataclass(frozen=True, slots=True)
class ExperimentQuery:
    """The experiments that a list is requested of, and their page."""

    limit: Limit = 100
    offset: Offset = 0
    archived: bool | None = None
    states: Annotated[tuple[str, ...], Query()] = ()
    labels: Annotated[tuple[str, ...], Query()] = ()
    name: str | None = None
    description: str | None = None
    users: Annotated[list[str] | None, Query()] = None
    user_ids: Annotated[list[int] | None, Query(alias="userIds")] = None
    project_id: Annotated[int | None, Query(alias="projectId")] = None
    trial_data: Annotated[bool, Query(alias="showTrialData", description="It is always shown.")] = True
    ids: Annotated[list[int] | None, Query(alias="experimentIdFilter.incl")] = None
    not_ids: Annotated[tuple[int, ...], Query(alias="experimentIdFilter.notIn")] = ()
    id_gt: Annotated[int | None, Query(alias="experimentIdFilter.gt")] = None
    id_gte: Annotated[int | None, Query(alias="experimentIdFilter.gte")] = None
    id_lt: Annotated[int | None, Query(alias="experimentIdFilter.lt")] = None
    id_lte: Annotated[int | None, Query(alias="experimentIdFilter.lte")] = None

    def filter(self, connection: Connection) -> ExperimentFilter:
        low = [bound for bound in (self.id_gte, None if self.id_gt is None else self.id_gt + 1) if bound is not None]
        high = [bound for bound in (self.id_lte, None if self.id_lt is None else self.id_lt - 1) if bound is not None]
        return ExperimentFilter(
            archived=self.archived,
            states=frozenset(names_of_states(self.states)),
            labels=self.labels,
            name=self.name,
            description=self.description,
            user_ids=users_among(connection, self.users, self.user_ids),
            ids=self.ids,
            not_ids=self.not_ids,
            at_least=max(low, default=None),
            at_most=min(high, default=None),
            project_id=self.project_id,
        )


@router.get("/experiments")
def list_experiments(
    connection: Reading, who: ViewerSomewhere, query: Annotated[ExperimentQuery, Depends()], sorting: TheOrder
) -> Experiments:
    # Here, and only here, a limit of 0 means the default.
    requested_page = page(query.offset, query.limit or 100)
    experiments, total, begin = queries.list_experiments(
        connection, query.filter(connection), sorting.order(), requested_page
    )
    figures = queries.experiment_figures(connection, [fact.id for fact in experiments])
    items = [Experiment.of(fact, figures[fact.id]) for fact in experiments]
    return Experiments(experiments=items, pagination=Pagination.of(total, begin, query.limit, len(items)))


@router.get("/experiment/labels", name="labels_in_use")
@router.get("/experiments/labels")
def all_labels(
    connection: Reading, who: ViewerSomewhere, project_id: Annotated[int | None, Query(alias="projectId")] = None
) -> Labels:
    """Labels in use, the most popular first."""
    return Labels(labels=queries.labels(connection, project_id))


# --- create


def launch_warnings(cluster: ClusterView, fact: facts.Experiment) -> list[str]:
    """What Determined calls what may keep its trials from starting."""
    try:
        fits = max((pool.slots for pool in cluster.pools() if pool.name == fact.pool), default=None)
    except SchedulerUnavailable:
        return []  # the experiment is there all the same
    return ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"] if fits is not None and fact.slots_per_trial > fits else []


def template_and_project(
    records: Records, visible: RecordReader, request: CreateRequest, parent: facts.Experiment | None
) -> tuple[Template | None, Project, list[str]]:
    """What a new experiment is laid over, where it is created, and what its owner should know of that; see ``filing.destination``.
    Raises ConfigError, NotFound, Refused."""
    template, notes = None, list[str]()
    if request.template:
        template, notes = of_experiments(templates.named(visible, request.template))
    with laid_over(request.config, template) as whole_yaml:
        project, more = filing.destination(records, visible, request.project_id, whole_yaml, parent)
    return template, project, [*notes, *more]


def _context(creator: Creator, home: Home, request: CreateRequest) -> bytes:
    """The context directory as tar.gz: what is sent, what the master has of an earlier request, or else that of the parent."""
    if request.context_digest:
        return contexts.by_digest(home, request.context_digest)
    if request.parent_id and not request.model_definition:
        with contextlib.suppress(NotFound):  # a parent that trains elsewhere has none
            return creator.context(request.parent_id)
    return contexts.pack(request.model_definition or [])


@router.post("/experiments")
def create_experiment(
    request: CreateRequest,
    store: TheStore,
    visible: VisibleRecords,
    services: TheServices,
    who: EditorSomewhere,
    may_create: MayCreate,
) -> Created:
    """Create an experiment, or with ``validateOnly`` only say what its config would be. A fork that brings no files has those
    of its parent."""
    if not may_create and not request.validate_only:
        raise Forbidden("a page has to ask for the password or a code before it creates an experiment")
    creator, records, home = services.creator, services.records, services.installation.home
    with store.read() as connection:
        parent = queries.experiment(connection, request.parent_id) if request.parent_id else None
    template, project, notes = template_and_project(records, visible, request, parent)
    try:
        who.must_be(Role.EDITOR, project.workspace_id)
    except Forbidden as refusal:
        raise Forbidden("; ".join([*notes, str(refusal)])) from None
    if request.unmanaged:
        unmanaged = NewExperiment(request.config, project_id=project.id, template=template, user_id=who.user_id)
        fact = creator.create_unmanaged(who.owner, unmanaged)
        with store.read() as connection:
            return Created(experiment=one(connection, fact.id), config=fact.config)
    new = NewExperiment(
        request.config,
        _context(creator, home, request),
        request.activate is not False,
        parent_id=request.parent_id or None,
        project_id=project.id,
        workspace=filing.workspace(records, project.workspace_id),
        validate_only=bool(request.validate_only),
        template=template,
        policies=config_policies.policies_of(records, project.workspace_id),
        environment=contexts.decoded("environment", request.environment) if request.environment else None,
        visible=visible,
        user_id=who.user_id,
    )
    fact, messages = creator.create(who.owner, new)
    notes += services.webhooks.notes(fact, project.workspace_id)
    answer, cluster = Experiment.of(fact, ExperimentFigures(user=who.user)), services.cluster
    if not request.validate_only:
        contexts.remember(home, request.model_definition or [], fact.context_sha256)
        with store.read() as connection:
            answer = one(connection, fact.id)
    return Created(
        experiment=answer,
        config=fact.config,
        warnings=launch_warnings(cluster, fact),
        notes=[*messages.notes, *notes, *([cluster.notice] if cluster.notice else [])],
        config_warnings=messages.of_config,
        environment=JobEnvironment.of(services.control.environment(fact), services.control.image(fact)),
    )


# --- one experiment


@router.get("/experiments/{experiment_id}")
def get_experiment(experiment_id: int, control: TheControl, connection: Reading, who: AnyPrincipal) -> ExperimentAnswer:
    may_see_experiment(who, experiment_id)
    fact = queries.experiment(connection, experiment_id)
    figures = queries.experiment_figures(connection, [experiment_id], trial_ids=True)[experiment_id]
    return ExperimentAnswer(
        experiment=Experiment.of(fact, figures),
        config=fact.config,
        job_summary=jobs.summary(control, connection, fact),
        environment=JobEnvironment.of(control.environment(fact), control.image(fact)),
    )


def _change(control: Control, experiment_id: int, changes: ExperimentChanges) -> None:
    control.do(events.ChangeExperiment(experiment_id, changes, clock.time()))


@router.patch("/experiments/{experiment_id}")
def patch(
    experiment_id: int,
    request: ExperimentPatch,
    records: TheRecords,
    control: TheControl,
    policies: ThePolicies,
    who: Editor,
) -> ExperimentAnswer:
    """Set the fields that the request holds, all or none."""
    given = request.model_dump(include={"name", "description", "notes", "labels"}, exclude_none=True)
    if request.resources is not None:
        resources = request.resources.model_dump(exclude_unset=True)
        # Only max_slots may be taken back (null); clients send the others as null when they do not mean them.
        given |= {name: value for name, value in resources.items() if value is not None or name == "max_slots"}
        if len(resources) > 1 and resources.get("max_slots", 0) is None:
            given.pop("max_slots")
    with records.reading() as connection:
        row = queries.experiment(connection, experiment_id)
    names.check_fields("experiment", given, row)
    if given.get("name", "x").strip() == "":
        if row.name.strip():
            raise Refused("the name of an experiment cannot be empty")
        del given["name"]  # clients send back what they read: an earlier release gave none to those without
    if given.keys() & {"max_slots", "priority", "weight"}:
        given |= _within_policies(records, row, given)
    counts = None if request.checkpoint_storage is None else request.checkpoint_storage.model_dump(exclude_none=True)
    if counts is not None:
        check_policy(row, counts)
    if "max_slots" in given:
        control.allow_slots(given["max_slots"])
    if given:
        _change(control, experiment_id, ExperimentChanges(**given))
    if counts is not None:  # last, because it may delete files
        policies.set(experiment_id, counts)
    with records.reading() as connection:
        return ExperimentAnswer(experiment=one(connection, experiment_id))


class _Resources(NamedTuple):
    """What is to be set of an experiment's resources."""

    slots_per_trial: int | None = None
    max_slots: int | None = None
    priority: int | None = None


def _within_policies(records: Records, row: facts.Experiment, given: dict[str, Any]) -> dict[str, Any]:
    """What is to be set in the place of no bound. Raises Refused where its workspace's policies, or the master's, forbid it."""
    project = filing.project(records, row.project_id)
    policies = config_policies.policies_of(records, project.workspace_id)
    bound = {"max_slots": config_policies.usual_slots(policies)} if given.get("max_slots", 0) is None else {}
    given = {**given, **bound}
    resources = _Resources(max_slots=given.get("max_slots"), priority=given.get("priority"))
    config_policies.check_constraints(resources, policies)
    config_policies.check_changes({name: given.get(name) for name in ("max_slots", "priority", "weight")}, policies)
    return bound


@router.put("/experiments/{experiment_id}/labels/{label:path}")
def add_label(experiment_id: int, label: str, store: TheStore, control: TheControl, who: Editor) -> Labels:
    return _set_labels(store, control, experiment_id, lambda labels: labels if label in labels else [*labels, label])


@router.delete("/experiments/{experiment_id}/labels/{label:path}")
def remove_label(experiment_id: int, label: str, store: TheStore, control: TheControl, who: Editor) -> Labels:
    return _set_labels(store, control, experiment_id, lambda labels: [other for other in labels if other != label])


def _set_labels(store: ReadStore, control: Control, experiment_id: int, change: Any) -> Labels:
    with store.read() as connection:
        row = queries.experiment(connection, experiment_id)
    changed = change(row.labels)
    names.check_fields("experiment", {"labels": changed}, row)
    return Labels(labels=row.labels if changed == row.labels else control.set_labels(experiment_id, change))


# --- what belongs to it


@router.get("/experiments/{experiment_id}/trials")
def trials(
    experiment_id: int,
    connection: Reading,
    who: AnyPrincipal,
    sorting: TheOrder,
    paging: ThePage,
    states: Annotated[tuple[str, ...], Query()] = (),
) -> Trials:
    may_see_experiment(who, experiment_id)
    queries.experiment(connection, experiment_id)
    by = order("" if sorting.sort_by == "SORT_BY_LOG_RETENTION_DAYS" else sorting.sort_by, sorting.order_by)
    state_names = frozenset(names_of_states(states))
    rows, total, begin = queries.list_trials(connection, experiment_id, state_names, by, paging.page)
    figures = queries.trial_figures(connection, rows)
    items = [Trial.of(fact, figures[fact.id]) for fact in rows]
    return Trials(trials=items, pagination=paging.pagination(total, begin, len(items)))


@router.get("/experiments/{experiment_id}/checkpoints")
def checkpoints(experiment_id: int, connection: Reading, who: AnyPrincipal, query: CheckpointList) -> Checkpoints:
    may_see_experiment(who, experiment_id)
    return query.of(connection, queries.experiment(connection, experiment_id), experiment_id=experiment_id)
