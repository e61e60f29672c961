"""Thinning out a time series so that its drawn line keeps its shape.

Largest-Triangle-Three-Buckets: S. Steinarsson, "Downsampling Time Series for Visual Representation", 2013, section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from dethpc.domain.nested import leaves
from dethpc.domain.not_finite import SPELLINGS, as_float
from dethpc.master.http.models import time
from dethpc.master.http.wire.trial import DataPoint, Series, split
from dethpc.state.queries import Reported

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TYPES = {"training": "METRIC_TYPE_TRAINING", "validation": "METRIC_TYPE_VALIDATION"}


def drawn(reports: Iterable[Reported], names: frozenset[str], points: int) -> list[Series]:
    """Series of reports that come ordered by group and steps. No ``names``: every metric; ``points`` 0: every report.

    Each metric is thinned out by itself, and a report stays when one of its metrics needs it. The first value of a metric that no
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
    for known in numbers.values():
        steps = [float(rows[index][0].steps_completed) for index, _ in known]
        chosen.update(known[i][0] for i in lttb(steps, [number for _, number in known], points))
    return chosen


def _number(value: object) -> float | None:
    """None: no number, or none that a line can show."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = as_float(value)
    return number if math.isfinite(number) else None


def lttb(x: Sequence[float] | NDArray[Any], y: Sequence[float] | NDArray[Any], points: int) -> list[int]:
    """Indexes of the points to keep, the first and the last among them; ``x`` ascending."""
    if len(x) <= points or points < 3:
        return list(range(len(x))) if len(x) <= points else [0, len(x) - 1][:points]
    import numpy  # on first use: it would double the memory of an idle master
    from tsdownsample import LTTBDownsampler

    indexes = LTTBDownsampler().downsample(numpy.asarray(x), numpy.asarray(y), n_out=points)
    return [int(index) for index in indexes]
