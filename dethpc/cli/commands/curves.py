"""Curves of metrics: what trials reported, as lines over steps, epochs or time; smoothed where asked for. No drawing here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Optional

from dethpc.cli.output import Json
from dethpc.domain.nested import leaves
from dethpc.domain.text.not_finite import SPELLINGS, as_float
from dethpc.domain.text.times import seconds

_LARGEST = 1e300  # beyond, differences of values leave the range of floats


@dataclass(frozen=True)
class Point:
    """One value: after how many steps, in which epoch (None: not reported), how many seconds after the trial's start."""

    steps: int
    epoch: Optional[float]
    seconds: float
    time: str
    value: float


@dataclass
class Curve:
    """The values of one metric of one trial, in order of steps."""

    experiment: int
    trial: int
    group: str
    metric: str
    points: list[Point] = field(default_factory=list)

    @property
    def drawable(self) -> list[Point]:
        """The points that a line can show."""
        return [point for point in self.points if abs(point.value) <= _LARGEST]

    @property
    def odd(self) -> list[Point]:
        """NaN, infinities, and what is too large to be drawn."""
        return [point for point in self.points if not abs(point.value) <= _LARGEST]


def read(answers: Iterable[Json], patterns: Sequence[str]) -> list[Curve]:
    """Curves from the answers of ``client.nouns.trials.series``, of the metrics that match one of ``patterns`` (``*loss``)."""
    curves: dict[tuple[int, str, str], Curve] = {}
    for answer in answers:
        trial = answer["trial"]
        number, start = int(trial["id"]), _seconds(trial.get("startTime"))
        for series in answer["metrics"]:
            group = series["group"]
            for item in series["data"]:
                at = _seconds(item.get("time"))
                since = 0.0 if at is None or start is None else max(0.0, at - start)
                for name, value in numbers(item["values"]):
                    if not any(fnmatchcase(name, pattern) for pattern in patterns):
                        continue
                    key = number, group, name
                    if key not in curves:
                        curves[key] = Curve(int(trial.get("experimentId") or 0), number, group, name)
                    point = Point(int(item["batches"]), item.get("epoch"), since, str(item.get("time") or ""), value)
                    curves[key].points.append(point)
    return list(curves.values())


def numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a report by name; a machine's are below its name: ``node1/gpu_util``."""
    for name, value in leaves(values, "/"):
        if isinstance(value, str) and value in SPELLINGS:
            yield name, SPELLINGS[value]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, as_float(value)


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """The debiased exponential moving average: s = weight * s + (1 - weight) * value from s = 0, shown as s / (1 - weight ** n)
    after n values (Kingma and Ba, "Adam", 2014, section 3). A value that is no number is passed over."""
    s, n, averages = 0.0, 0, []
    for value in values:
        if abs(value) <= _LARGEST:
            n += 1
            s = weight * s + (1 - weight) * value
            averages.append(s / (1 - weight**n))
        else:
            averages.append(value)
    return averages


def with_smoothing(curve: Curve, weight: float) -> Curve:
    values = smoothed([point.value for point in curve.points], weight)
    points = [Point(p.steps, p.epoch, p.seconds, p.time, value) for p, value in zip(curve.points, values)]
    return Curve(curve.experiment, curve.trial, curve.group, curve.metric, points)


def along(point: Point, x: str) -> Optional[float]:
    """Where the point is on the axis ``x``: steps, epochs or time (seconds)."""
    return {"steps": float(point.steps), "epochs": point.epoch, "time": point.seconds}[x]


def thinned(curve: Curve, points: int) -> Curve:
    """About ``points`` of its points, so that each stretch keeps its least and its greatest value: nothing that a line of that many
    dots would show is lost."""
    drawn = curve.drawable
    if len(drawn) <= points:
        return curve
    size = math.ceil(len(drawn) / max(1, points // 2))
    chosen: list[Point] = [drawn[0]]
    for first in range(0, len(drawn), size):
        part = range(first, min(first + size, len(drawn)))
        ends = {min(part, key=lambda i: drawn[i].value), max(part, key=lambda i: drawn[i].value)}
        chosen += [drawn[i] for i in sorted(ends)]
    return Curve(curve.experiment, curve.trial, curve.group, curve.metric, [*chosen, drawn[-1], *curve.odd[:1]])


def _seconds(time: Optional[str]) -> Optional[float]:
    return seconds(time) if time else None
