"""Routes that act on experiments, on one or on many at a time; each of many succeeds or fails alone."""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Depends
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from dethpc.domain.roles import Role
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import DethpcError, LeaseHeld, MasterError, StoreError
from dethpc.master.experiments import config_policies, filing
from dethpc.master.experiments.control import Control
from dethpc.master.http.access import (
    Editor,
    EditorSomewhere,
    TheCheckpoints,
    TheCluster,
    TheControl,
    TheCreator,
    TheRecords,
    TheStore,
    VisibleRecords,
)
from dethpc.master.http.models import Wire, names_of_states
from dethpc.master.http.nouns.experiments import Experiment, launch_warnings, one
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import ExperimentFilter, Order, Page


class ContinueRequest(Wire):
    id: int
    override_config: str | None = None


class Continued(Wire):
    experiment: Experiment
    warnings: list[str] = []
    notes: list[str] = []  # ours: what the owner should know, in words


class ManyFilters(Wire):
    """An unknown one is refused: what it would have left out must not be acted upon."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    archived: bool | None = None
    description: str | None = None
    excluded_experiment_ids: list[int] | None = None
    labels: list[str] | None = None
    name: str | None = None
    project_id: int | None = None
    states: list[str] | None = None
    user_ids: list[int] | None = None


class ManyRequest(Wire):
    experiment_ids: list[int] = []
    project_id: int | None = None
    destination_project_id: int | None = None  # of a move
    num_days: Annotated[int | None, Field(ge=-1, le=32767)] = None  # for which logs are kept; -1: for ever
    filters: ManyFilters | None = None


class ExperimentMove(Wire):
    destination_project_id: int


class Result(Wire):
    error: str
    id: int


class Results(Wire):
    results: list[Result]


class ChosenExperiments:
    """Those that a request about many means: the ids that it gives, in its order, once each; with filters those that these find,
    whatever ids it gives. Project -1 or 0: of all projects. Raises NotFound for a project that is not there."""

    def __init__(
        self, project_id: int, request: ManyRequest, store: TheStore, records: TheRecords, who: EditorSomewhere
    ) -> None:
        if project_id > 0:
            filing.project(records, project_id)
        self.destination_project_id = request.destination_project_id or 0
        self.num_days = request.num_days
        filters = request.filters
        self.may_file_into = partial(who.must_be, Role.EDITOR)
        self.missing: set[int] = set()
        if filters is None:
            self.ids = list(dict.fromkeys(request.experiment_ids))
            with store.read() as connection:
                self.missing = {*self.ids} - {fact.id for fact in queries.experiments_by_id(connection, self.ids)}
            return
        criteria = ExperimentFilter(
            archived=filters.archived,
            states=frozenset(names_of_states(filters.states or ())),
            labels=filters.labels or (),
            name=filters.name,
            description=filters.description,
            user_ids=filters.user_ids or None,
            not_ids=filters.excluded_experiment_ids or (),
            project_id=max(0, filters.project_id or project_id) or None,
        )
        with store.read() as connection:
            experiments, _, _ = queries.list_experiments(connection, criteria, Order("id"), Page(limit=None))
        self.ids = [fact.id for fact in experiments]


Chosen = Annotated[ChosenExperiments, Depends()]

router = new_router(prefix="/api/v1", tags=["experiments"])


@router.post("/experiments/continue")
def continue_experiment(
    request: ContinueRequest,
    store: TheStore,
    records: TheRecords,
    creator: TheCreator,
    cluster: TheCluster,
    who: EditorSomewhere,
) -> Continued:
    """Go on with one that has ended, in the same trials from their latest checkpoints."""
    with store.read() as connection:
        project = filing.open_project(records, queries.experiment(connection, request.id).project_id)
    policies = config_policies.policies_of(records, project.workspace_id)
    fact, notes = creator.go_on(who.owner, request.id, request.override_config or "", policies)
    warnings = launch_warnings(cluster, fact)
    with store.read() as connection:
        return Continued(experiment=one(connection, fact.id), warnings=warnings, notes=notes)


# --- one


@router.post("/experiments/{experiment_id}/activate")
def activate(experiment_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    control.do(events.Activate(experiment_id, clock.time()))
    return {}


@router.post("/experiments/{experiment_id}/pause")
def pause(experiment_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    """Its trials checkpoint and give their slots back."""
    control.do(events.Pause(experiment_id, clock.time()))
    return {}


@router.post("/experiments/{experiment_id}/cancel")
def cancel(experiment_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    """End it; its trials checkpoint first."""
    control.do(events.Cancel(experiment_id, clock.time()))
    return {}


@router.post("/experiments/{experiment_id}/kill")
def kill(experiment_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    """End it now. Ours: ``changed``, whether there was anything to end."""
    return {"changed": bool(control.do(events.Kill(experiment_id, clock.time())))}


@router.post("/experiments/{experiment_id}/archive")
def archive(experiment_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    _archive(control, experiment_id, True)
    return {}


@router.post("/experiments/{experiment_id}/unarchive")
def unarchive(experiment_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    _archive(control, experiment_id, False)
    return {}


@router.post("/experiments/{experiment_id}/move")
def move(
    experiment_id: int, request: ExperimentMove, control: TheControl, visible: VisibleRecords, who: Editor
) -> dict[str, Any]:
    """To another project. Raises Refused where the workspace's policies do not allow its configuration."""
    project = filing.open_project(visible, request.destination_project_id)
    who.must_be(Role.EDITOR, project.workspace_id)
    control.move(experiment_id, project.id)
    return {}


@router.delete("/experiments/{experiment_id}")
def delete(experiment_id: int, control: TheControl, who: Editor) -> dict[str, Any]:
    control.delete(experiment_id)
    return {}


@router.delete("/experiments/{experiment_id}/tensorboard-files")
def delete_tensorboard_files(experiment_id: int, checkpoints: TheCheckpoints, who: Editor) -> dict[str, Any]:
    checkpoints.remove_tensorboard(experiment_id)
    return {}


# --- many


@router.post("/projects/{project_id}/experiments/activate")
def activate_all(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda id: control.do(events.Activate(id, clock.time())), chosen)


@router.post("/projects/{project_id}/experiments/pause")
def pause_all(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda id: control.do(events.Pause(id, clock.time())), chosen)


@router.post("/projects/{project_id}/experiments/cancel")
def cancel_all(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda id: control.do(events.Cancel(id, clock.time())), chosen)


@router.post("/projects/{project_id}/experiments/kill")
def kill_all(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda id: control.do(events.Kill(id, clock.time())), chosen)


@router.post("/projects/{project_id}/experiments/archive")
def archive_all(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda id: _archive(control, id, True), chosen)


@router.post("/projects/{project_id}/experiments/unarchive")
def unarchive_all(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda id: _archive(control, id, False), chosen)


@router.delete("/projects/{project_id}/experiments/delete")
def delete_all(chosen: Chosen, control: TheControl) -> Results:
    return _results(control.delete, chosen)


@router.post("/projects/{project_id}/experiments/move")
def move_all(chosen: Chosen, control: TheControl, visible: VisibleRecords) -> Results:
    project = filing.open_project(visible, chosen.destination_project_id)
    chosen.may_file_into(project.workspace_id)
    return _results(lambda id: control.move(id, project.id), chosen)


def _results(act: Callable[[int], Any], chosen: ChosenExperiments) -> Results:
    """``act`` on each that is meant, one after the other."""

    def error(id: int) -> str:
        return f"experiment {id} not found" if id in chosen.missing else error_of(act, id)

    return Results(results=[Result(id=id, error=error(id)) for id in chosen.ids])


def error_of(act: Callable[..., Any], *subject: Any) -> str:
    """Why it was refused, else "". Raises what keeps the master from doing anything at all."""
    try:
        act(*subject)
    except (StoreError, MasterError, LeaseHeld):
        raise
    except DethpcError as refused:
        return str(refused)
    return ""


# --- what is done


def _archive(control: Control, experiment_id: int, archived: bool) -> None:
    control.do(events.ChangeExperiment(experiment_id, ExperimentChanges(archived=archived), clock.time()))
