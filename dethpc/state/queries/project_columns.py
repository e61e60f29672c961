"""Which columns the tables of a project have besides their own, and the ranges of their metrics.

Each experiment is asked through one trial: its best, or its first. Its trials have the same hyperparameters, and report alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, String, func, literal, select, type_coerce

from dethpc.domain.facts import Experiment, Trial
from dethpc.domain.filters import STATISTICS
from dethpc.domain.states import State
from dethpc.state import rows
from dethpc.state.columns import decoded
from dethpc.state.queries.filtering import numeric_statistics
from dethpc.state.queries.trials import best_of_experiment
from dethpc.state.tables import Summary

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_other = rows.table(Trial).alias().c
_summary = rows.table(Summary).c

_FIRST = (
    select(func.min(_other.id))
    .where(_other.experiment_id == _experiment.id)
    .correlate(rows.table(Experiment))
    .scalar_subquery()
)
_SAMPLE: ColumnElement[int] = func.coalesce(best_of_experiment, _FIRST)


def _of_project(query: Select[Any], project_id: int) -> Select[Any]:
    return query.where(_experiment.project_id == project_id, _experiment.state != State.DELETED)


def metric_types(connection: Connection, project_id: int) -> list[tuple[str, str, str]]:
    """(group, name, type as ``Summary`` has it) of the metrics in a project, sorted; a metric may have several types."""
    query = (
        select(_summary.group, _summary.name, _summary.type)
        .select_from(rows.table(Experiment))
        .join(rows.table(Summary), _summary.trial_id == _SAMPLE)
        .distinct()
    )
    return sorted((group, name, kind) for group, name, kind in connection.execute(_of_project(query, project_id)))


def hyperparameters(connection: Connection, project_id: int) -> Iterator[dict[str, Any]]:
    """Of one trial of each experiment; those that are alike may come once."""
    query = (
        select(type_coerce(_trial.hparams, String))
        .select_from(rows.table(Experiment))
        .join(rows.table(Trial), _trial.id == _SAMPLE)
        .distinct()
    )
    return _dicts(connection, _of_project(query, project_id))


def configurations(connection: Connection, project_id: int) -> Iterator[dict[str, Any]]:
    """Of its experiments."""
    return _dicts(connection, _of_project(select(type_coerce(_experiment.config, String)), project_id))


def metadata(connection: Connection, project_id: int) -> Iterator[dict[str, Any]]:
    """Of all its trials that have any."""
    text = type_coerce(_trial.metadata, String)
    query = (
        select(text).join(rows.table(Experiment), _experiment.id == _trial.experiment_id).where(text != literal("{}"))
    )
    return _dicts(connection, _of_project(query, project_id))


def _dicts(connection: Connection, query: Select[Any]) -> Iterator[dict[str, Any]]:
    for text in connection.scalars(query.execution_options(yield_per=1000)):
        value = decoded(text)
        if isinstance(value, dict):
            yield value


class Range(NamedTuple):
    """Of a statistic of a metric, such as ``validation.loss.min``, or of ``searcherMetricsVal``."""

    name: str
    low: float
    high: float


def metric_ranges(connection: Connection, project_id: int) -> list[Range]:
    """Over the best trials of the experiments in a project."""
    statistics = numeric_statistics()
    limits = [limit(statistics[name]) for name in STATISTICS for limit in (func.min, func.max)]
    query = (
        select(_summary.group, _summary.name, *limits)
        .select_from(rows.table(Experiment))
        .join(rows.table(Summary), _summary.trial_id == best_of_experiment)
        .where(_summary.type == "number")
        .group_by(_summary.group, _summary.name)
        .order_by(_summary.group, _summary.name)
    )
    ranges = [
        Range(f"{group}.{name}.{statistic}", *values[2 * at : 2 * at + 2])
        for group, name, *values in connection.execute(_of_project(query, project_id))
        for at, statistic in enumerate(STATISTICS)
    ]
    best: Select[Any] = select(func.min(_trial.best_validation), func.max(_trial.best_validation)).select_from(
        rows.table(Experiment)
    )
    best = _of_project(best.join(rows.table(Trial), _trial.id == best_of_experiment), project_id)
    ranges += [Range("searcherMetricsVal", low, high) for low, high in connection.execute(best)]
    return [one for one in ranges if one.low is not None]
