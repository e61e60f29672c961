"""Experiments on the wire."""

from __future__ import annotations

import time as clock
from typing import Any, Literal

from dethpc.domain import facts
from dethpc.domain.environment import Environment
from dethpc.domain.states import shown_as
from dethpc.domain.trial_config import SearcherConfig
from dethpc.master.http.models import (
    Float,
    Given,
    MaskedConfig,
    MaskedText,
    Pagination,
    Plain,
    Told,
    Wire,
    time,
    time_or_none,
)
from dethpc.master.http.nouns.garbage import CheckpointPolicy
from dethpc.master.http.nouns.jobs import JobSummary
from dethpc.master.http.wire.trial import Trial
from dethpc.state.queries import ExperimentFigures


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
    user_id: int = 1
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
    project_name: str = "Uncategorized"
    project_owner_id: int = 1
    workspace_id: int = 1
    workspace_name: str = "Uncategorized"
    unmanaged: bool
    external_experiment_id: str | None
    external_trial_id: str | None  # of its first trial that has one, in the answer about one experiment
    reason: str  # ours: why it is in this state, in words
    warning: str  # ours: what its trials report that its search can do nothing with
    held_slots: int | None  # ours: slots that its jobs hold now, also while they stop; None: none runs
    running_jobs: int = 0  # ours
    suspended_jobs: int = 0  # ours: those of them that the scheduler has suspended
    labels: list[Told]
    config: MaskedConfig
    original_config: MaskedText
    hyperparameters: Plain

    @classmethod
    def of(cls, fact: facts.Experiment, figures: ExperimentFigures) -> Experiment:
        searcher = SearcherConfig.of(fact.config)
        return cls(
            **_told(fact, figures),
            labels=fact.labels,
            config=fact.config,
            original_config=fact.original_config,
            hyperparameters=fact.config.get("hyperparameters") or {},
            searcher_type=searcher.name,
            searcher_metric=searcher.metric,
        )


def _told(fact: facts.Experiment, figures: ExperimentFigures) -> dict[str, Any]:
    """What needs nothing of the configuration."""
    return {
        "id": fact.id,
        "name": fact.name,
        "description": fact.description,
        "notes": fact.notes,
        "state": experiment_state(fact, figures.running),
        "archived": fact.archived,
        "job_id": fact.queue_id,
        "username": fact.owner,
        "display_name": fact.owner,
        "resource_pool": fact.pool,
        "start_time": time(fact.created_at),
        "end_time": time_or_none(fact.ended_at),
        "duration": int((fact.ended_at or clock.time()) - fact.created_at),
        "progress": fact.progress,
        "num_trials": figures.trials,
        "trial_ids": figures.trial_ids,
        "best_trial_id": figures.best_trial,
        "best_trial_searcher_metric": figures.best_metric,
        "checkpoint_count": figures.checkpoints,
        "checkpoint_size": None if figures.checkpoint_bytes is None else str(figures.checkpoint_bytes),
        "forked_from": fact.parent_id,
        "project_id": fact.project_id,
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


class File(Wire):
    """One member of a context directory. ``content`` is base64; ``type`` the tar type flag's code."""

    path: str
    type: int = ord("0")
    content: str = ""
    mtime: int = 0
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


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
    max_slots: int | None = None
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
    labels: list[Told]


class ModelDefinition(Wire):
    b64_tgz: str


class FileNode(Wire):
    """A file or directory of a context directory."""

    name: str
    path: str
    is_dir: bool
    content_length: int
    content_type: str = ""
    modified_time: str
    files: list[FileNode] = []


class FileTree(Wire):
    files: list[FileNode]


class FileRequest(Wire):
    """``length``: ours, at most so many bytes from its beginning."""

    path: str = ""
    length: int | None = None


class FileAnswer(Wire):
    file: str  # base64


class CodeChange(Wire):
    """``diff``: a unified one; empty where ``why`` says why there is none."""

    path: str
    kind: Literal["added", "removed", "changed"]
    diff: str
    why: str


class CodeChanges(Wire):
    """Ours: how the context directory of an experiment differs from that of ``against``. ``more``: changes that are not told."""

    against: int
    changes: list[CodeChange]
    more: int


class Validation(Wire):
    trial_id: int
    end_time: str
    searcher_metric: Float


class ValidationHistory(Wire):
    validation_history: list[Validation]


class BestMetric(Wire):
    metric: Float | None


class MetricIdentifier(Wire):
    group: str
    name: str


class MetricNames(Wire):
    searcher_metrics: list[str]
    training_metrics: list[str]
    validation_metrics: list[str]
    metric_names: list[MetricIdentifier]


class SearchRequest(Wire):
    limit: int | None = None
    offset: int | None = None
    project_id: int | None = None
    sort: str | None = None
    filter: str | None = None


class Found(Wire):
    experiment: Experiment
    best_trial: Trial | None = None


class SearchAnswer(Wire):
    experiments: list[Found]
    pagination: Pagination


class SearcherProgress(Wire):
    """Ours: how far the search is."""

    progress: Float
    trials: int
    trials_by_state: dict[str, int]
