"""What hyperparameters have to do with the metric: how much each explains of it, and how it looks over two of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dethpc.domain.nested import leaves

LEAST = 10
"""Trials; of fewer nobody can tell."""

MOST_BINS = 8
"""Groups of a number's values whose ranks are compared."""

MOST_CELLS = 12
"""Columns and rows of a heat map."""

WIDE = 30
"""The largest over the smallest value, from which on numbers of which nothing is known are shown by their logarithms."""

Tried = tuple[Mapping[str, Any], float]
"""Hyperparameters of a trial and its best value of the searcher's metric."""


@dataclass(frozen=True, slots=True)
class Importance:
    """``share``: 0 to 1, of the differences between the trials' ranks that go with this one alone; None where too few trials tell.
    ``direction``: -1 to 1, whether larger values go with larger values of the metric; None for what is no number."""

    name: str
    share: float | None
    direction: float | None
    trials: int


def importance(tried: Sequence[Tried]) -> list[Importance]:
    """Of every hyperparameter that differs between trials, the most important first.

    The share is eta squared of ranks, (H - k + 1) / (n - k), where H is Kruskal and Wallis' (Use of Ranks in One-Criterion
    Variance Analysis, 1952; as an effect size: Tomczak and Tomczak, 2014): trials are ranked by the metric and put into k
    groups, by the value of what is no number or was tried with few values, and any other number into up to ``MOST_BINS`` groups of
    about as many trials each, so that the best value may lie in the middle. It is 0 where the groups are as chance makes them,
    and sees no interplay of several hyperparameters. The direction is Spearman's rank correlation (1904). Neither depends on how
    the metric or a number is scaled.
    """
    rows = [(dict(leaves(hparams)), metric) for hparams, metric in tried if math.isfinite(metric)]
    names = dict.fromkeys(name for values, _ in rows for name in values)
    ranks = _ranks([metric for _, metric in rows])
    candidates = [_one(name, [(v[name], m) for v, m in rows if name in v], ranks) for name in names]
    importances = [candidate for candidate in candidates if candidate is not None]
    return sorted(importances, key=lambda entry: (-(entry.share or 0.0), entry.name))


def _one(name: str, pairs: Sequence[tuple[Any, float]], ranks: Sequence[float]) -> Importance | None:
    """``ranks``: by the metric, of all trials; those that have this one may be fewer."""
    values = [value for value, _ in pairs]
    if all(value == values[0] for value in values):
        return None
    n, numbers = len(pairs), all(_is_number(value) for value in values)
    if n < LEAST:
        return Importance(name, None, None, n)
    by_metric = ranks if n == len(ranks) else _ranks([metric for _, metric in pairs])
    if not numbers:
        return Importance(name, _eta_squared([_text(value) for value in values], by_metric), None, n)
    by_value = _ranks(values)
    bins = max(2, min(MOST_BINS, n // 5))
    few = len(set(values)) <= min(MOST_BINS, n // 2)  # a grid's: what lies between them was not tried
    groups = by_value if few else [int((rank - 0.5) * bins / n) for rank in by_value]
    return Importance(name, _eta_squared(groups, by_metric), _correlation(by_value, by_metric), n)


def _eta_squared(groups: Sequence[Any], ranks: Sequence[float]) -> float | None:
    n, mean = len(ranks), (len(ranks) + 1) / 2
    members = defaultdict[Any, list[float]](list)
    for group, rank in zip(groups, ranks, strict=True):
        members[group].append(rank)
    total = sum((rank - mean) ** 2 for rank in ranks)
    if n <= len(members) or not total:
        return None
    between = sum(
        len(member_ranks) * (sum(member_ranks) / len(member_ranks) - mean) ** 2 for member_ranks in members.values()
    )
    h = (n - 1) * between / total
    return min(1.0, max(0.0, (h - len(members) + 1) / (n - len(members))))


def _correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    mean = (len(a) + 1) / 2
    spread = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True)) / spread if spread else None


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks, at = [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for index in order[at : end + 1]:
            ranks[index] = (at + end) / 2 + 1
        at = end + 1
    return ranks


@dataclass(frozen=True, slots=True)
class Cell:
    trials: int
    mean: float
    best: float


@dataclass(frozen=True, slots=True)
class HeatMap:
    """``cells[row][column]``: rows are values of ``y``, the first at the top; None where there is no trial. ``logarithmic``: those
    of the two whose ranges are as wide as each other in the logarithm."""

    x: str
    y: str
    logarithmic: list[str]
    columns: list[str]
    rows: list[str]
    cells: list[list[Cell | None]]


def logarithmic(space: Mapping[str, Any]) -> dict[str, bool]:
    """Of the hyperparameters that a configuration draws as numbers: whether it draws their logarithms."""
    drawn = {"log": True, "double": False, "int": False}
    parts = (name.rpartition(".") + (value,) for name, value in leaves(space))
    return {name: drawn[kind] for name, _, field, kind in parts if field == "type" and kind in drawn}


def heat_map(
    tried: Sequence[Tried], x: str, y: str, smaller_is_better: bool, log: Mapping[str, bool] | None = None
) -> HeatMap:
    """The metric over two hyperparameters. Numbers of many values are put into ranges as wide as each other, in the logarithm
    where ``log`` says so, or says nothing and they span thirty times; of what is no number the ``MOST_CELLS`` most frequent values
    count."""
    log = log or {}
    rows = [(dict(leaves(hparams)), metric) for hparams, metric in tried if math.isfinite(metric)]
    rows = [(values, metric) for values, metric in rows if x in values and y in values]
    across, columns, x_log = _places([values[x] for values, _ in rows], log.get(x))
    up, lines, y_log = _places([values[y] for values, _ in rows], log.get(y))
    metrics = defaultdict[tuple[int, int], list[float]](list)
    for values, metric in rows:
        column, line = across(values[x]), up(values[y])
        if column is not None and line is not None:
            metrics[line, column].append(metric)
    best = min if smaller_is_better else max

    def cell(line: int, column: int) -> Cell | None:
        there = metrics.get((line, column))
        return Cell(len(there), sum(there) / len(there), best(there)) if there else None

    order = range(len(lines) - 1, -1, -1)
    cells = [[cell(line, column) for column in range(len(columns))] for line in order]
    scaled = [name for name, is_log in ((x, x_log), (y, y_log)) if is_log]
    return HeatMap(x, y, scaled, columns, [lines[line] for line in order], cells)


def _places(values: Sequence[Any], log: bool | None) -> tuple[Callable[[Any], int | None], list[str], bool]:
    """Which place a value has, what the places are called, and whether they are as wide as each other in the logarithm."""
    if not values or not all(_is_number(value) for value in values):
        counted = defaultdict[str, int](int)
        for value in values:
            counted[_text(value)] += 1
        labels = sorted(sorted(counted, key=lambda text: -counted[text])[:MOST_CELLS])
        at = {text: place for place, text in enumerate(labels)}
        return lambda value: at.get(_text(value)), labels, False
    distinct = sorted(set(values))
    if len(distinct) <= MOST_CELLS:
        index = {value: place for place, value in enumerate(distinct)}
        return index.get, [f"{value:.4g}" for value in distinct], False
    low, high = distinct[0], distinct[-1]
    is_log = low > 0 and (high / low >= WIDE if log is None else log)
    scale, back = (math.log, math.exp) if is_log else (float, float)
    count = max(3, min(MOST_CELLS, math.isqrt(len(values))))
    width = (scale(high) - scale(low)) / count
    edges = [back(scale(low) + width * place) for place in range(count + 1)]
    names = [f"{a:.3g} – {b:.3g}" for a, b in zip(edges, edges[1:], strict=False)]
    return lambda value: min(count - 1, int((scale(value) - scale(low)) / width)), names, is_log


def _text(value: Any) -> str:
    """As a configuration says it: ``null`` is a value like any other."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e300 < value < 1e300
