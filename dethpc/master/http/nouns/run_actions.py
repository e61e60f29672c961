"""Routes that act on runs (trials), many at a time; each of them succeeds or fails alone.

Pausing, resuming and moving act on the experiment of a run. Deleting a run deletes its experiment, where that has no other.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Depends

from dethpc.domain import facts, filters
from dethpc.domain.records import ArchivedTrial
from dethpc.domain.roles import Role
from dethpc.engine import events
from dethpc.errors import Refused
from dethpc.master.durable.records import Records
from dethpc.master.experiments import filing
from dethpc.master.http.access import EditorSomewhere, TheControl, TheRecords, TheStore, VisibleRecords
from dethpc.master.http.models import Wire
from dethpc.master.http.nouns.control import Result, Results, error_of
from dethpc.master.http.nouns.listings import is_multitrial
from dethpc.master.http.router import new_router
from dethpc.state.queries import Page
from dethpc.state.queries import listings as stored
from dethpc.state.queries.listings import RunRow


class RunsRequest(Wire):
    """Of both, ``filter`` alone counts; clients that send it send no ids."""

    run_ids: list[int] = []
    filter: str | None = None
    project_id: int | None = None
    source_project_id: int | None = None  # of a move, in place of ``project_id``
    destination_project_id: int | None = None
    skip_multitrial: bool = False


class ChosenRuns:
    """The runs that a request means, of one project or (None, 0) of all, and those ids that are none. Raises NotFound, Refused."""

    def __init__(self, request: RunsRequest, store: TheStore, records: TheRecords, who: EditorSomewhere) -> None:
        self.request, self.may_file_into = request, partial(who.must_be, Role.EDITOR)
        project_id = request.project_id or request.source_project_id or 0
        if project_id:
            filing.project(records, project_id)
        if request.filter is not None and request.run_ids:
            raise Refused("either runIds or filter: with a filter, the list of ids must be empty")
        ids = [id for id in dict.fromkeys(request.run_ids) if abs(id) < 1 << 63]
        with store.read() as connection:
            if request.filter is not None:
                criteria = filters.parse(request.filter)
                ids, _, _ = stored.ids_of_runs(connection, project_id, criteria, [], Page(limit=None))
            rows = stored.run_rows(connection, ids)
        self.rows = [row for row in rows if project_id in (0, row.experiment.project_id)]
        there = {row.trial.id for row in self.rows}
        place = f" in project {project_id}" if project_id else ""
        missing = [id for id in dict.fromkeys(request.run_ids) if id not in there]
        self.missing = [Result(id=id, error=f"run {id} not found{place}") for id in missing]


Chosen = Annotated[ChosenRuns, Depends()]

router = new_router(prefix="/api/v1/runs", tags=["runs"])


@router.post("/kill")
def kill(chosen: Chosen, control: TheControl) -> Results:
    def act(row: RunRow) -> None:
        if not row.trial.state.terminal:
            control.do(events.KillTrial(row.trial.id, clock.time()))

    return _results(act, chosen)


@router.post("/pause")
def pause(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda row: control.do(events.Pause(_pausable(row).id, clock.time())), chosen)


@router.post("/resume")
def resume(chosen: Chosen, control: TheControl) -> Results:
    return _results(lambda row: control.do(events.Activate(_pausable(row).id, clock.time())), chosen)


@router.post("/archive")
def archive(chosen: Chosen, records: TheRecords) -> Results:
    """Of runs that have ended; that of an archived experiment is archived already."""
    return _results(lambda row: _archive(row, records, True), chosen)


@router.post("/unarchive")
def unarchive(chosen: Chosen, records: TheRecords) -> Results:
    return _results(lambda row: _archive(row, records, False), chosen)


@router.post("/delete")
def delete(chosen: Chosen, control: TheControl) -> Results:
    def act(row: RunRow) -> None:
        if not row.trial.state.terminal:
            raise Refused(f"run {row.trial.id} has not ended: kill it first")
        several = f"run {row.trial.id} is one of several of experiment {row.experiment.id}, and cannot be deleted alone"
        control.delete(_alone(row, several).id)

    return _results(act, chosen)


@router.post("/move")
def move(chosen: Chosen, control: TheControl, visible: VisibleRecords) -> Results:
    """With their experiments, all of whose runs move."""
    project = filing.open_project(visible, chosen.request.destination_project_id or 0)
    chosen.may_file_into(project.workspace_id)
    moved: set[int] = set()

    def act(row: RunRow) -> None:
        if is_multitrial(row.experiment) and chosen.request.skip_multitrial:
            raise Refused(f"run {row.trial.id} is one of several of experiment {row.experiment.id}, and is skipped")
        _refuse_archived(row)
        if row.experiment.id not in moved:
            control.move(row.experiment.id, project.id)
            moved.add(row.experiment.id)

    return _results(act, chosen)


def _results(act: Callable[[RunRow], Any], chosen: ChosenRuns) -> Results:
    """``act`` on each that is meant, one after the other."""
    results = [Result(id=row.trial.id, error=error_of(act, row)) for row in chosen.rows]
    return Results(results=[*results, *chosen.missing])


def _pausable(row: RunRow) -> facts.Experiment:
    """Clients compare the refusal with this text. Raises Refused."""
    experiment = _alone(row, f"Cannot pause/unpause run '{row.trial.id}' (part of multi-trial).")
    _refuse_archived(row)
    return experiment


def _alone(row: RunRow, refusal: str) -> facts.Experiment:
    """The experiment of a run that has no other. Raises Refused with this text."""
    experiment = row.experiment
    if is_multitrial(experiment):
        raise Refused(refusal)
    return experiment


def _refuse_archived(row: RunRow) -> None:
    if row.archived or row.experiment.archived or row.parent_archived:
        raise Refused(f"run {row.trial.id} is archived")


def _archive(row: RunRow, records: Records, archived: bool) -> None:
    if row.experiment.archived:
        if not archived:
            raise Refused(
                f"run {row.trial.id} is part of experiment {row.experiment.id}, which is archived: unarchive that"
            )
        return
    if archived and not row.trial.state.terminal:
        raise Refused(f"run {row.trial.id} has not ended: only runs that have ended are archived")
    if archived and not row.archived:
        records.put(ArchivedTrial(row.trial.id, clock.time()))
    elif row.archived and not archived:
        records.drop(records.get(ArchivedTrial, row.trial.id))
