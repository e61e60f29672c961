"""Thinning out a time series so that its drawn line keeps its shape.

Largest-Triangle-Three-Buckets: S. Steinarsson, "Downsampling Time Series for Visual Representation", 2013, section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from dethpc.domain.facts import Metric
from dethpc.domain.not_finite import SPELLINGS
from dethpc.master.http.wire.base import time
from dethpc.master.http.wire.trial import DataPoint, Series, split

_TYPES = {"training": "METRIC_TYPE_TRAINING", "validation": "METRIC_TYPE_VALIDATION"}


def drawn(reports: Iterable[Metric], names: frozenset[str], points: int) -> list[Series]:
    """Series of reports that come ordered by group and steps. No ``names``: every metric; ``points`` 0: every report.

    Each metric is thinned out by itself, and a report stays when one of its metrics needs it. The first value of a metric that no
    line can show (NaN, an infinity) stays, too: it is news.
    """
    answer = []
    for group, members in groupby(reports, key=lambda report: report.group):
        rows = [(report, split(report.metrics)[0]) for report in members]
        rows = [(report, {n: v for n, v in values.items() if not names or n in names}) for report, values in rows]
        rows = [(report, values) for report, values in rows if values]
        if 0 < points < len(rows):
            chosen = _chosen(rows, points)
            rows = [rows[index] for index in sorted(chosen)]
        data = [
            DataPoint(
                batches=report.steps_completed,
                values=values,
                time=time(report.reported_at),
                epoch=_number(report.metrics.get("epoch")),
            )
            for report, values in rows
        ]
        answer.append(Series(group=group, type=_TYPES.get(group, "METRIC_TYPE_UNSPECIFIED"), data=data))
    return answer


def _chosen(rows: Sequence[tuple[Metric, dict[str, object]]], points: int) -> set[int]:
    numbers: dict[str, list[tuple[int, float]]] = {}
    odd: dict[str, int] = {}
    for index, (_, values) in enumerate(rows):
        for name, value in _leaves(values):
            number = _number(value)
            if number is not None:
                numbers.setdefault(name, []).append((index, number))
            elif value in SPELLINGS or (isinstance(value, float) and not math.isfinite(value)):
                odd.setdefault(name, index)
    chosen = set(odd.values())
    for known in numbers.values():
        steps = [float(rows[index][0].steps_completed) for index, _ in known]
        chosen.update(known[i][0] for i in lttb(steps, [number for _, number in known], points))
    return chosen


def _leaves(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Metrics by name; those of a machine are below its name (and its device's): ``node1/gpu0/gpu_util``."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}/")
        else:
            yield above + name, value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == float("inf"):
        return None
    return float(value)


def lttb(x: Sequence[float], y: Sequence[float], points: int) -> list[int]:
    """Indexes of the points to keep, the first and the last among them; ``x`` ascending."""
    if len(x) <= points or points < 3:
        return list(range(len(x))) if len(x) <= points else [0, len(x) - 1][:points]
    import numpy  # on first use: it would double the memory of an idle master
    from tsdownsample import LTTBDownsampler

    indexes = LTTBDownsampler().downsample(numpy.asarray(x), numpy.asarray(y), n_out=points)
    return [int(index) for index in indexes]
