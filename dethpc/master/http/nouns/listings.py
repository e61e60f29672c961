"""Tables of experiments and of runs (trials), filtered and sorted by any column; and which columns a project's tables have."""

from __future__ import annotations

import time as clock
from typing import Annotated

from pydantic import Field

from dethpc.domain import facts, filters
from dethpc.domain.attempts.log_policies import Noted
from dethpc.domain.filters import Filter, Sorting
from dethpc.domain.trial_config import SearcherConfig
from dethpc.master.durable.records import Records
from dethpc.master.experiments import filing
from dethpc.master.http.access import Reading, TheRecords, ViewerSomewhere
from dethpc.master.http.models import Float, Pagination, Plain, UserText, Wire, page, time, time_or_none
from dethpc.master.http.nouns.experiments import Experiment
from dethpc.master.http.nouns.trials import Trial
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import TrialFigures
from dethpc.state.queries import listings as stored

MOST = 1 << 62
"""Beyond it, no page begins and none ends."""


class SearchRequest(Wire):
    """``filter`` and ``sort``: see ``domain.filters``. A limit of 0 means 100, and -1 all."""

    limit: Annotated[int | None, Field(ge=-2, le=MOST)] = None
    offset: Annotated[int | None, Field(ge=-MOST, le=MOST)] = None
    project_id: Annotated[int | None, Field(ge=-MOST, le=MOST)] = None
    sort: str | None = None
    filter: str | None = None


class FoundExperiment(Wire):
    experiment: Experiment
    best_trial: Trial | None = None


class SearchAnswer(Wire):
    experiments: list[FoundExperiment]
    pagination: Pagination


class RunExperiment(Wire):
    """What a run shows of its experiment."""

    id: int
    name: str
    description: str
    progress: Float
    resource_pool: str
    searcher_type: str
    searcher_metric: str
    is_multitrial: bool
    unmanaged: bool
    forked_from: int | None
    external_experiment_id: str | None

    @classmethod
    def of(cls, fact: facts.Experiment) -> RunExperiment:
        searcher = SearcherConfig.of(fact.config)
        return cls(
            id=fact.id,
            name=fact.name,
            description=fact.description,
            progress=fact.progress,
            resource_pool=fact.pool,
            searcher_type=searcher.name,
            searcher_metric=searcher.metric,
            is_multitrial=is_multitrial(fact),
            unmanaged=not fact.kind.submitted,
            forked_from=fact.parent_id,
            external_experiment_id=fact.external_id or None,
        )


def is_multitrial(experiment: facts.Experiment) -> bool:
    return SearcherConfig.of(experiment.config).name != "single"


class FlatRun(Wire):
    """A trial as a row of a table."""

    id: int
    local_id: str
    state: str
    archived: bool
    parent_archived: bool
    start_time: str
    end_time: str | None
    duration: int
    checkpoint_count: int
    checkpoint_size: str
    searcher_metric_value: Float | None
    summary_metrics: Plain
    hyperparameters: Plain
    metadata: Plain
    labels: list[UserText]
    external_run_id: str | None
    log_policy_matched: str | None
    user_id: int
    project_id: int
    project_name: UserText
    workspace_id: int
    workspace_name: UserText
    experiment: RunExperiment

    @classmethod
    def of(cls, row: stored.RunRow, figures: TrialFigures) -> FlatRun:
        fact, experiment = row.trial, row.experiment
        begin = fact.started_at or fact.created_at
        return cls(
            id=fact.id,
            local_id=f"{row.project_key}-{fact.id}",
            state=f"STATE_{fact.state.value}",  # tables of runs say ACTIVE of what waits and of what runs
            archived=row.archived or experiment.archived,
            parent_archived=row.parent_archived,
            start_time=time(begin),
            end_time=time_or_none(fact.ended_at),
            duration=int(fact.duration(clock.time())),
            checkpoint_count=figures.checkpoints,
            checkpoint_size=str(figures.checkpoint_bytes),
            searcher_metric_value=fact.best_validation,
            summary_metrics=figures.summary,
            hyperparameters=fact.hparams,
            metadata=fact.metadata or None,
            labels=experiment.labels,
            external_run_id=fact.external_id or None,
            log_policy_matched=Noted.of(fact.search).name or None,
            user_id=experiment.user_id,
            project_id=experiment.project_id,
            project_name=row.place.project_name,
            workspace_id=row.place.workspace_id,
            workspace_name=row.place.workspace_name,
            experiment=RunExperiment.of(experiment),
        )


class Runs(Wire):
    runs: list[FlatRun]
    pagination: Pagination


router = new_router(prefix="/api/v1")


@router.post("/experiments-search", tags=["experiments"])
def search_experiments(
    request: SearchRequest, connection: Reading, who: ViewerSomewhere, records: TheRecords
) -> SearchAnswer:
    criteria, orders, limit, project_id = _read(request, records)
    requested = page(request.offset or 0, limit)
    ids, total, begin = stored.ids_of_experiments(connection, project_id, criteria, orders, requested)
    by_id = {fact.id: fact for fact in queries.experiments_by_id(connection, ids)}
    figures = queries.experiment_figures(connection, ids)
    best = queries.trials_by_id(connection, [one.best_trial for one in figures.values() if one.best_trial is not None])
    best_figures = queries.trial_figures(connection, best)
    trials = {fact.experiment_id: Trial.of(fact, best_figures[fact.id]) for fact in best}
    items = [FoundExperiment(experiment=Experiment.of(by_id[id], figures[id]), best_trial=trials.get(id)) for id in ids]
    return SearchAnswer(experiments=items, pagination=Pagination.of(total, begin, limit, len(items)))


@router.post("/runs", tags=["runs"])
def search_runs(request: SearchRequest, connection: Reading, who: ViewerSomewhere, records: TheRecords) -> Runs:
    """Trials of one project, or of all."""
    criteria, orders, limit, project_id = _read(request, records)
    ids, total, begin = stored.ids_of_runs(connection, project_id, criteria, orders, page(request.offset or 0, limit))
    rows = stored.run_rows(connection, ids)
    figures = queries.trial_figures(connection, [row.trial for row in rows])
    items = [FlatRun.of(row, figures[row.trial.id]) for row in rows]
    return Runs(runs=items, pagination=Pagination.of(total, begin, limit, len(items)))


def _read(request: SearchRequest, records: Records) -> tuple[Filter, list[Sorting], int, int]:
    """Raises Refused, and NotFound for a project that is not there."""
    project_id = request.project_id or 0
    if project_id:
        filing.project(records, project_id)
    return filters.parse(request.filter), filters.sortings(request.sort), request.limit or 100, project_id
