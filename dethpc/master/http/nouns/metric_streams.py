"""Streams of what trials report: names of metrics, the steps at which one was reported, its course in the best trials, and its
value at a step.

A stream ends with its first message; with ``periodSeconds`` it goes on with what is new until the experiment has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import Field
from sqlalchemy import Connection

from dethpc.domain.facts import Trial
from dethpc.domain.not_finite import numbers_in
from dethpc.errors import Refused
from dethpc.master.http import streams
from dethpc.master.http.access import Owner, TheStore
from dethpc.master.http.models import Float, Plain, Told, Wire
from dethpc.master.http.nouns.metrics import DataPoint, drawn
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import metric_streams as stored
from dethpc.state.queries.metric_streams import MetricOf


class MetricIdentifier(Wire):
    group: Told
    name: Told


class MetricNames(Wire):
    searcher_metrics: list[Told]
    training_metrics: list[Told]
    validation_metrics: list[Told]
    metric_names: list[MetricIdentifier]


class MetricBatches(Wire):
    batches: list[int]


class SampledTrial(Wire):
    trial_id: int
    hparams: Plain
    data: list[DataPoint]


class TrialsSample(Wire):
    """``promoted_trials`` are new among the best since the last message, ``demoted_trials`` are not among them any more."""

    trials: list[SampledTrial]
    promoted_trials: list[int]
    demoted_trials: list[int]


class TrialValue(Wire):
    trial_id: int
    hparams: Plain
    batches_processed: int
    metric: Float


class TrialsSnapshot(Wire):
    trials: list[TrialValue]


router = new_router(prefix="/api/v1/experiments", tags=["experiments"])

LONGEST_PERIOD = 3600
_MOST = 1 << 62

Period = Annotated[
    int, Query(alias="periodSeconds", ge=0, le=LONGEST_PERIOD, description="0: there is one message, of what there is.")
]
Name = Annotated[str, Query(alias="metricName")]
Type = Annotated[str, Query(alias="metricType")]


@router.get("/metrics-stream/metric-names")
def metric_names(
    store: TheStore,
    who: Owner,
    ids: Annotated[list[Annotated[int, Field(ge=0, le=_MOST)]], Query()],
    period: Period = 0,
) -> StreamingResponse:
    return streams.following(store, period, _have_ended(ids), _when_changed(lambda connection: _names(connection, ids)))


def _names(connection: Connection, ids: list[int]) -> MetricNames:
    names = queries.metric_names(connection, ids)
    return MetricNames(
        searcher_metrics=sorted({queries.experiment(connection, id).metric for id in ids} - {""}),
        training_metrics=[name for group, name in names if group == "training"],
        validation_metrics=[name for group, name in names if group == "validation"],
        metric_names=[MetricIdentifier(group=group, name=name) for group, name in names],
    )


@router.get("/{experiment_id}/metrics-stream/batches")
def batches(
    experiment_id: int,
    store: TheStore,
    who: Owner,
    name: Name,
    metric_type: Type = "",
    group: str = "",
    period: Period = 0,
) -> StreamingResponse:
    """The steps at which any trial reported the metric."""
    metric = _metric(experiment_id, name, metric_type, group)
    seen: set[int | None] = set()

    def look(connection: Connection) -> list[Wire]:
        queries.experiment(connection, experiment_id)
        steps = [step for step in stored.steps_of(connection, metric) if step not in seen]
        first = not seen
        seen.update(steps, [None])
        return [MetricBatches(batches=steps)] if steps or first else []

    return streams.following(store, period, _have_ended([experiment_id]), look)


@router.get("/{experiment_id}/metrics-stream/trials-snapshot")
def trials_snapshot(
    experiment_id: int,
    store: TheStore,
    who: Owner,
    name: Name,
    steps: Annotated[int, Query(alias="batchesProcessed", ge=0, le=_MOST)],
    metric_type: Type = "",
    group: str = "",
    margin: Annotated[int, Query(alias="batchesMargin", ge=0, le=_MOST)] = 0,
    period: Period = 0,
) -> StreamingResponse:
    """The metric of each trial at the step nearest to ``batchesProcessed``, within the margin."""
    metric = _metric(experiment_id, name, metric_type, group)

    def look(connection: Connection) -> TrialsSnapshot:
        queries.experiment(connection, experiment_id)
        samples = stored.values_at(connection, metric, steps, margin)
        values = (
            TrialValue(trial_id=one.trial_id, hparams=one.hparams, batches_processed=one.steps, metric=value)
            for one in samples
            if _is_number(value := numbers_in(one.value))
        )
        return TrialsSnapshot(trials=list(values))

    return streams.following(store, period, _have_ended([experiment_id]), _when_changed(look))


@router.get("/{experiment_id}/metrics-stream/trials-sample")
def trials_sample(
    experiment_id: int,
    store: TheStore,
    who: Owner,
    name: Name,
    metric_type: Type = "",
    group: str = "",
    most: Annotated[int, Query(alias="maxTrials", ge=0, le=1000)] = 0,
    points: Annotated[int, Query(alias="maxDatapoints", ge=0)] = 0,
    start: Annotated[int, Query(alias="startBatches", ge=-_MOST, le=_MOST)] = 0,
    end: Annotated[int, Query(alias="endBatches", ge=-_MOST, le=_MOST)] = 0,
    period: Period = 0,
) -> StreamingResponse:
    """The course of the metric in the trials where it is best: 25 unless ``maxTrials`` says how many."""
    sampler = _Sampler(_metric(experiment_id, name, metric_type, group), most or 25, points or 1000, start, end)
    return streams.following(store, period, _have_ended([experiment_id]), sampler.look)


class _Sampler:
    """Knows what was sent: a message has the points since the one before."""

    def __init__(self, metric: MetricOf, most: int, points: int, start: int, end: int) -> None:
        self._metric, self._most, self._points, self._start, self._end = metric, most, points, start, end
        self._sent: dict[int, int] = {}  # the last step of each trial
        self._first = True

    def look(self, connection: Connection) -> list[TrialsSample]:
        queries.experiment(connection, self._metric.experiment_id)
        best = {trial.id: trial for trial in stored.best_by(connection, self._metric, self._most)}
        before = set(self._sent)
        begin = self._start if best.keys() - before else min(self._sent.values(), default=self._start)
        group = [self._metric.group]
        reports = queries.series(connection, best, group, begin, self._end or None)
        trials = {
            id: self._course(best[id], [one for one in own if one.steps_completed > self._sent.get(id, -1)])
            for id, own in groupby(reports, key=attrgetter("trial_id"))
        }
        answer = TrialsSample(
            trials=[trials[id] for id in best if id in trials],
            promoted_trials=[id for id in best if id not in before],
            demoted_trials=sorted(before - best.keys()),
        )
        self._sent = {id: self._sent.get(id, -1) for id in best}
        self._sent.update({one.trial_id: one.data[-1].batches for one in answer.trials if one.data})
        first, self._first = self._first, False
        news = answer.trials or answer.promoted_trials or answer.demoted_trials
        return [answer] if news or first else []

    def _course(self, trial: Trial, reports: list[Any]) -> SampledTrial:
        (*_, series) = [None, *drawn(reports, frozenset([self._metric.name]), self._points)]
        return SampledTrial(trial_id=trial.id, hparams=trial.hparams, data=[] if series is None else series.data)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _metric(experiment_id: int, name: str, metric_type: str, group: str) -> MetricOf:
    """Raises Refused."""
    if not group and metric_type in ("METRIC_TYPE_TRAINING", "METRIC_TYPE_VALIDATION"):
        group = metric_type.removeprefix("METRIC_TYPE_").lower()
    if not group:
        raise Refused("say which group of metrics is meant: group, or metricType (training or validation)")
    return MetricOf(experiment_id, group, name)


def _have_ended(experiment_ids: list[int]) -> Callable[[Connection], bool]:
    return lambda connection: all(queries.experiment(connection, id).state.terminal for id in experiment_ids)


def _when_changed(look: Callable[[Connection], Wire]) -> Callable[[Connection], list[Wire]]:
    """What it finds, unless that is what it found the last time."""
    previous: list[Wire] = []

    def changed(connection: Connection) -> list[Wire]:
        answer = look(connection)
        if previous == [answer]:
            return []
        previous[:] = [answer]
        return [answer]

    return changed
