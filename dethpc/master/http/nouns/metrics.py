"""Metrics reports: wire models, streams, and time series reduced to fewer points for plots."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse

from dethpc.domain import facts
from dethpc.domain.nested import leaves
from dethpc.domain.text.not_finite import SPELLINGS, as_float
from dethpc.master.http import streams
from dethpc.master.http.access import AnyPrincipal, TheStore, visible_trial
from dethpc.master.http.models import Float, Plain, Wire, time
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import Reported
from dethpc.state.store import ReadStore

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Metrics(Wire):
    avg_metrics: Plain
    batch_metrics: list[Plain] | None = None


class MetricsWorkload(Wire):
    """One report of a group of metrics."""

    end_time: str | None
    metrics: Metrics
    num_inputs: int = 0
    total_batches: int

    @classmethod
    def of(cls, fact: facts.Metric, batches: bool = False) -> MetricsWorkload:
        values, batch_metrics = split(fact.metrics)
        metrics = Metrics(avg_metrics=values, batch_metrics=batch_metrics if batches else None)
        return cls(end_time=time(fact.reported_at), metrics=metrics, total_batches=fact.steps_completed)


def split(metrics: dict[str, Any]) -> tuple[dict[str, Any], list[Any] | None]:
    """Averaged values, and the per-batch values that older training code reports beside them."""
    batches = metrics.get("batch_metrics")
    if not isinstance(batches, list):
        return metrics, None
    return {name: value for name, value in metrics.items() if name != "batch_metrics"}, batches


class DataPoint(Wire):
    batches: int
    values: Plain
    time: str
    epoch: Float | None = None


class Series(Wire):
    """Points of one group of metrics, in order of steps."""

    group: str
    type: str
    data: list[DataPoint]


class MetricsReport(Wire):
    """One report in a stream. ``metrics`` holds the values under the key that readers of its group expect."""

    id: int
    trial_id: int
    trial_run_id: int
    total_batches: int
    end_time: str
    group: str
    metrics: Plain
    archived: bool = False

    @classmethod
    def of(cls, id: int, fact: facts.Metric) -> MetricsReport:
        values, batches = split(fact.metrics)
        body: dict[str, Any] = {"validation_metrics" if fact.group == "validation" else "avg_metrics": values}
        if batches is not None:
            body["batch_metrics"] = batches
        return cls(
            id=id,
            trial_id=fact.trial_id,
            trial_run_id=int(fact.run_id.rpartition(".")[2] or 0),
            total_batches=fact.steps_completed,
            end_time=time(fact.reported_at),
            group=fact.group,
            metrics=body,
        )


class MetricsReports(Wire):
    metrics: list[MetricsReport]


router = new_router(prefix="/api/v1", tags=["trials"])

_REPORTS = 500  # in one message of a stream
_TYPES = {"training": "METRIC_TYPE_TRAINING", "validation": "METRIC_TYPE_VALIDATION"}


def drawn(reports: Iterable[Reported], names: frozenset[str], points: int) -> list[Series]:
    """Series of reports that come ordered by group and steps. No ``names``: every metric; ``points`` 0: every report.

    Each metric is downsampled by itself, and a report stays when one of its metrics needs it. The first value of a metric that no
    line can show (NaN, an infinity) stays, too: it is news.
    """
    answer = []
    for group, members in groupby(reports, key=attrgetter("group")):
        rows = [(report, split(report.metrics)[0]) for report in members]
        if names:
            rows = [(report, {n: v for n, v in values.items() if n in names}) for report, values in rows]
        rows = [row for row in rows if row[1]]
        if 0 < points < len(rows):
            chosen = _chosen(rows, points)
            rows = [rows[index] for index in sorted(chosen)]
        data = [
            DataPoint(
                batches=report.steps_completed,
                values=values,
                time=time(report.reported_at),
                epoch=_epoch(report.metrics),
            )
            for report, values in rows
        ]
        answer.append(Series(group=group, type=_TYPES.get(group, "METRIC_TYPE_UNSPECIFIED"), data=data))
    return answer


def _epoch(metrics: Mapping[str, object]) -> float | None:
    """How far it was by its own ``epoch``, or by ``epochs``, which the training APIs report beside their metrics."""
    own = _number(metrics.get("epoch"))
    return _number(metrics.get("epochs")) if own is None else own


Rows = Sequence[tuple[Reported, dict[str, object]]]


def _chosen(rows: Rows, points: int) -> set[int]:
    import numpy  # on first use: it would double the memory of an idle master

    steps = numpy.array([report.steps_completed for report, _ in rows], dtype=float)
    chosen: set[int] = set()
    others = []
    for name in set().union(*(values for _, values in rows)):
        column: list[Any] = [values.get(name) for _, values in rows]
        if _all_finite(column):  # as nearly all metrics are; a column at once takes a fifth of the time
            chosen.update(lttb(steps, numpy.array(column, dtype=float), points))
        else:
            others.append(name)
    return chosen | _chosen_one_by_one(rows, others, points) if others else chosen


def _all_finite(column: Sequence[Any]) -> bool:
    """Whether these are numbers alone, and their sum is finite, too."""
    try:
        return set(map(type, column)) <= {float, int} and math.isfinite(sum(column))
    except OverflowError:  # an integer beyond all floats
        return False


def _chosen_one_by_one(rows: Rows, names: Collection[str], points: int) -> set[int]:
    """For metrics that not every report has, or that are not all finite numbers."""
    numbers: dict[str, list[tuple[int, float]]] = {}
    odd: dict[str, int] = {}
    for index, (_, values) in enumerate(rows):
        for name, value in leaves({name: values[name] for name in names if name in values}, "/"):
            number = _number(value)
            if number is not None:
                numbers.setdefault(name, []).append((index, number))
            elif value in SPELLINGS or (isinstance(value, (int, float)) and not isinstance(value, bool)):
                odd.setdefault(name, index)
    chosen = set(odd.values())
    for samples in numbers.values():
        steps = [float(rows[index][0].steps_completed) for index, _ in samples]
        chosen.update(samples[i][0] for i in lttb(steps, [number for _, number in samples], points))
    return chosen


def _number(value: object) -> float | None:
    """None: no number, or none that a line can show."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = as_float(value)
    return number if math.isfinite(number) else None


def lttb(x: Sequence[float] | NDArray[Any], y: Sequence[float] | NDArray[Any], points: int) -> list[int]:
    """Indexes of at most ``points`` points that keep the shape of the drawn line, the first and the last among them. ``x`` ascends.

    Largest-Triangle-Three-Buckets: S. Steinarsson, "Downsampling Time Series for Visual Representation", 2013, section 4.2.
    """
    if len(x) <= points or points < 3:
        return list(range(len(x))) if len(x) <= points else [0, len(x) - 1][:points]
    import numpy  # on first use: it would double the memory of an idle master
    from tsdownsample import LTTBDownsampler

    indexes = LTTBDownsampler().downsample(numpy.asarray(x), numpy.asarray(y), n_out=points)
    return [int(index) for index in indexes]


def _reports(store: ReadStore, who: Any, trial_ids: list[int], group: str | None) -> StreamingResponse:
    with store.read() as connection:
        for trial_id in trial_ids:
            visible_trial(connection, who, trial_id)

    def batches() -> Iterator[MetricsReports]:
        for trial_id in trial_ids:
            after = 0
            while True:
                # A short read for each message: a slow client must not hold an old state of the database open.
                with store.read() as connection:
                    reports = queries.metrics_after(connection, trial_id, group, after, _REPORTS)
                if reports:
                    after = reports[-1][0]
                    yield MetricsReports(metrics=[MetricsReport.of(id, fact) for id, fact in reports])
                if len(reports) < _REPORTS:
                    break

    async def lines() -> AsyncIterator[bytes]:
        async for chunk in streams.in_thread(batches(), 1):
            for batch in chunk:
                yield streams.line(batch)

    return streams.Stream(lines())


TrialIds = Annotated[list[int], Query(alias="trialIds")]


@router.get("/trials/metrics/trial_metrics")
def metrics(store: TheStore, who: AnyPrincipal, trial_ids: TrialIds, group: str = "") -> StreamingResponse:
    """Reports of a group, or of every group, in order."""
    return _reports(store, who, trial_ids, group or None)


@router.get("/trials/metrics/training_metrics")
def training_metrics(store: TheStore, who: AnyPrincipal, trial_ids: TrialIds) -> StreamingResponse:
    return _reports(store, who, trial_ids, "training")


@router.get("/trials/metrics/validation_metrics")
def validation_metrics(store: TheStore, who: AnyPrincipal, trial_ids: TrialIds) -> StreamingResponse:
    return _reports(store, who, trial_ids, "validation")
