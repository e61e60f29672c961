"""Actions on experiments on the wire."""

from __future__ import annotations

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from dethpc.master.http.models import Wire
from dethpc.master.http.wire.experiment import Experiment

PROJECTS = (-1, 0, 1)
"""The one that there is; -1 and 0 mean all."""


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
    filters: ManyFilters | None = None


class Result(Wire):
    error: str
    id: int


class Results(Wire):
    results: list[Result]
