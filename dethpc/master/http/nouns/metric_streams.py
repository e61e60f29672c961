"""Streams of what trials report: names of metrics, the steps at which one was reported, its course in the best trials, and its
value at a step.

A stream ends with its first message; with ``periodSeconds`` it goes on with what is new until the experiment has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import Field
from sqlalchemy import Connection

from dethpc.domain.facts import Trial
from dethpc.domain.text.not_finite import numbers_in
from dethpc.errors import Refused
from dethpc.master.http import streams
from dethpc.master.http.access import TheStore, Viewer, ViewerSomewhere
from dethpc.master.http.models import Float, Plain, UserText, Wire
from dethpc.master.http.nouns.metrics import DataPoint, drawn
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import metric_streams as stored
from dethpc.state.queries.metric_streams import MetricOf
from dethpc.state.store import ReadStore


class MetricIdentifier(Wire):
    group: UserText
    name: UserText


class MetricNames(Wire):
    searcher_metrics: list[UserText]
    training_metrics: list[UserText]
    validation_metrics: list[UserText]
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
    who: ViewerSomewhere,
    ids: Annotated[list[Annotated[int, Field(ge=0, le=_MOST)]], Query()],
    period: Period = 0,
) -> StreamingResponse:
    names = streams.when_changed(lambda connection: _names(connection, ids))
    return streams.following(store, period, _have_ended(ids), names)


def _names(connection: Connection, ids: list[int]) -> MetricNames:
    names = queries.metric_names(connection, ids)
    return MetricNames(
        searcher_metrics=sorted({queries.experiment(connection, id).metric for id in ids} - {""}),
        training_metrics=[name for group, name in names if group == "training"],
        validation_metrics=[name for group, name in names if group == "validation"],
        metric_names=[MetricIdentifier(group=group, name=name) for group, name in names],
    )


class MetricQuery:
    """Which metric of an experiment a stream is about. Raises Refused where its group is not said."""

    def __init__(
        self, experiment_id: int, name: Name, metric_type: Type = "", group: str = "", period: Period = 0
    ) -> None:
        if not group and metric_type in ("METRIC_TYPE_TRAINING", "METRIC_TYPE_VALIDATION"):
            group = metric_type.removeprefix("METRIC_TYPE_").lower()
        if not group:
            raise Refused("say which group of metrics is meant: group, or metricType (training or validation)")
        self.metric, self.period = MetricOf(experiment_id, group, name), period

    def stream(self, store: ReadStore, look: Callable[[Connection], Sequence[Wire]]) -> StreamingResponse:
        return streams.following(store, self.period, _have_ended([self.metric.experiment_id]), look)


class Window:
    """Which points of a course are sent: 0 is no bound, and of points 1000."""

    def __init__(
        self,
        points: Annotated[int, Query(alias="maxDatapoints", ge=0)] = 0,
        start: Annotated[int, Query(alias="startBatches", ge=-_MOST, le=_MOST)] = 0,
        end: Annotated[int, Query(alias="endBatches", ge=-_MOST, le=_MOST)] = 0,
    ) -> None:
        self.points, self.start, self.end = points or 1000, start, end or None


TheMetric = Annotated[MetricQuery, Depends()]


@router.get("/{experiment_id}/metrics-stream/batches")
def batches(query: TheMetric, store: TheStore, who: Viewer) -> StreamingResponse:
    """The steps at which any trial reported the metric."""
    seen: set[int | None] = set()

    def look(connection: Connection) -> list[Wire]:
        queries.experiment(connection, query.metric.experiment_id)
        steps = [step for step in stored.steps_of(connection, query.metric) if step not in seen]
        first = not seen
        seen.update(steps, [None])
        return [MetricBatches(batches=steps)] if steps or first else []

    return query.stream(store, look)


@router.get("/{experiment_id}/metrics-stream/trials-snapshot")
def trials_snapshot(
    query: TheMetric,
    store: TheStore,
    who: Viewer,
    steps: Annotated[int, Query(alias="batchesProcessed", ge=0, le=_MOST)],
    margin: Annotated[int, Query(alias="batchesMargin", ge=0, le=_MOST)] = 0,
) -> StreamingResponse:
    """The metric of each trial at the step nearest to ``batchesProcessed``, within the margin."""

    def look(connection: Connection) -> TrialsSnapshot:
        queries.experiment(connection, query.metric.experiment_id)
        values = (
            TrialValue(trial_id=one.trial_id, hparams=one.hparams, batches_processed=one.steps, metric=value)
            for one in stored.values_at(connection, query.metric, steps, margin)
            if _is_number(value := numbers_in(one.value))
        )
        return TrialsSnapshot(trials=list(values))

    return query.stream(store, streams.when_changed(look))


@router.get("/{experiment_id}/metrics-stream/trials-sample")
def trials_sample(
    query: TheMetric,
    store: TheStore,
    who: Viewer,
    window: Annotated[Window, Depends()],
    most: Annotated[int, Query(alias="maxTrials", ge=0, le=1000)] = 0,
) -> StreamingResponse:
    """The course of the metric in the trials where it is best: 25 unless ``maxTrials`` says how many."""
    return query.stream(store, _Sampler(query.metric, most or 25, window).look)


class _Sampler:
    """Knows what was sent: a message has the points since the one before."""

    def __init__(self, metric: MetricOf, most: int, window: Window) -> None:
        self._metric, self._most, self._window = metric, most, window
        self._sent: dict[int, int] = {}  # the last step of each trial
        self._first = True

    def look(self, connection: Connection) -> list[TrialsSample]:
        queries.experiment(connection, self._metric.experiment_id)
        best = {trial.id: trial for trial in stored.best_by(connection, self._metric, self._most)}
        before = set(self._sent)
        begin = self._window.start if best.keys() - before else min(self._sent.values(), default=self._window.start)
        group = [self._metric.group]
        reports = queries.series(connection, best, group, begin, self._window.end)
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
        (*_, series) = [None, *drawn(reports, frozenset([self._metric.name]), self._window.points)]
        return SampledTrial(trial_id=trial.id, hparams=trial.hparams, data=[] if series is None else series.data)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _have_ended(experiment_ids: list[int]) -> Callable[[Connection], bool]:
    return lambda connection: all(queries.experiment(connection, id).state.terminal for id in experiment_ids)
