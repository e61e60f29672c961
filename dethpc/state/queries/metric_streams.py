"""One metric of an experiment: at which steps it was reported, in which trials it is best, and what it is at a step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, String, case, select, type_coerce

from dethpc.domain.facts import Experiment, Metric, Trial
from dethpc.state import rows
from dethpc.state.columns import decoded
from dethpc.state.tables import Summary

_metric = rows.table(Metric).c
_trial = rows.table(Trial).c
_experiment = rows.table(Experiment).c
_summary = rows.table(Summary).c


class MetricOf(NamedTuple):
    experiment_id: int
    group: str
    name: str


def _reported(metric: MetricOf) -> list[ColumnElement[bool]]:
    """Of reports of trials that have the metric, along the index of each."""
    having = select(_summary.trial_id).where(
        _summary.trial_id.in_(select(_trial.id).where(_trial.experiment_id == metric.experiment_id)),
        _summary.group == metric.group,
        _summary.name == metric.name,
    )
    names = type_coerce(_metric.metrics, String).contains(json.dumps(metric.name) + ":", autoescape=True)
    return [_metric.trial_id.in_(having), _metric.group == metric.group, names]


def steps_of(connection: Connection, metric: MetricOf) -> list[int]:
    """At which it was reported by any trial."""
    return sorted(connection.scalars(select(_metric.steps_completed).where(*_reported(metric)).distinct()))


def best_by(connection: Connection, metric: MetricOf, most: int) -> list[Trial]:
    """The trials in which it was best, the best first: largest or smallest as the experiment's own metric is better."""
    order = case((_experiment.smaller_is_better, _summary.min), else_=-_summary.max)
    query = (
        rows.query(Trial, _trial.experiment_id == metric.experiment_id)
        .join(rows.table(Experiment), _experiment.id == _trial.experiment_id)
        .join(rows.table(Summary), _summary.trial_id == _trial.id)
        .where(_summary.group == metric.group, _summary.name == metric.name, _summary.type == "number")
        .order_by(order.nulls_last(), _trial.id)
    )
    return [Trial(*row) for row in connection.execute(query.limit(most))]


class Sample(NamedTuple):
    """A trial's value at the step that was asked for, or at the one nearest to it."""

    trial_id: int
    hparams: dict[str, Any]
    steps: int
    value: Any


def values_at(connection: Connection, metric: MetricOf, steps: int, margin: int) -> Iterator[Sample]:
    """Of all trials that reported it within ``margin`` of ``steps``, by trial."""
    query = (
        select(_trial.id, type_coerce(_trial.hparams, String), _metric.steps_completed, _metric.metrics)
        .join(rows.table(Metric), _metric.trial_id == _trial.id)
        .where(*_reported(metric), _metric.steps_completed.between(steps - margin, steps + margin))
        .order_by(_trial.id, _metric.steps_completed, _metric.id)
    )
    nearest: tuple[int, str, int, Any] | None = None
    for row in connection.execute(query.execution_options(yield_per=1000)):
        id, hparams, at, metrics = row
        if metric.name not in metrics:
            continue
        if nearest is not None and nearest[0] != id:
            yield Sample(nearest[0], decoded(nearest[1]), *nearest[2:])
            nearest = None
        if nearest is None or abs(at - steps) <= abs(nearest[2] - steps):
            nearest = id, hparams, at, metrics[metric.name]
    if nearest is not None:
        yield Sample(nearest[0], decoded(nearest[1]), *nearest[2:])
