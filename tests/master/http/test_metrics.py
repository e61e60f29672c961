"""How a time series is thinned out."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.master.http.nouns.metrics import _chosen, _chosen_one_by_one, drawn
from dethpc.state.queries import Reported

VALUES = st.floats(allow_nan=True) | st.integers() | st.booleans() | st.none() | st.just("NaN")
REPORTS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1), min_size=5, max_size=40)


def rows(reports: list[dict[str, Any]]) -> list[tuple[Reported, dict[str, Any]]]:
    return [(Reported(1, "training", step, float(step), values), values) for step, values in enumerate(reports)]


@given(REPORTS)
def test_columns_are_thinned_out_as_their_values_are_one_by_one(reports: list[dict[str, Any]]) -> None:
    reports = [
        {name: v for name, v in one.items() if not isinstance(v, int) or abs(v) < 2**53} or {"a": 1.0}
        for one in reports
    ]
    names = {name for one in reports for name in one}
    assert _chosen(rows(reports), 4) == _chosen_one_by_one(rows(reports), names, 4)


@pytest.mark.parametrize(
    ("metrics", "epoch"),
    [
        ({"epochs": 0.5}, 0.5),  # of the training APIs
        ({"epoch": 2}, 2.0),
        ({"epoch": 2, "epochs": 3}, 2.0),
        ({"epoch": "NaN", "epochs": 3}, 3.0),
        ({}, None),
    ],
)
def test_how_far_it_was_in_epochs_is_what_a_report_says(metrics: dict[str, Any], epoch: float | None) -> None:
    (series,) = drawn([Reported(1, "training", 1, 1.0, {"loss": 1.0, **metrics})], frozenset({"loss"}), 0)
    assert series.data[0].epoch == epoch


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=40),
    st.integers(0, 39),
    st.sampled_from([math.nan, -math.inf, 10**400, -(10**400)]),
)
def test_the_first_of_what_no_line_can_show_stays(values: list[float], at: int, odd: float) -> None:
    values[at % len(values)] = odd
    reports = [Reported(1, "training", step, float(step), {"loss": value}) for step, value in enumerate(values)]
    (series,) = drawn(reports, frozenset(), 4)
    assert at % len(values) in [point.batches for point in series.data]


@pytest.mark.parametrize("points", [0, 4])
@pytest.mark.parametrize("huge", [2**63, 2**1023, 10**400, -(10**400)])
def test_one_huge_whole_number_keeps_nothing_else_from_being_shown(huge: int, points: int) -> None:
    values = [{"loss": 1.0 / step, "epoch": step} for step in range(1, 11)]
    values[4] |= {"loss": huge, "epoch": huge, "layers": {"first": huge}}
    (series,) = drawn([Reported(1, "training", n, float(n), one) for n, one in enumerate(values)], frozenset(), points)
    shown = {point.batches: point for point in series.data}
    assert {0, 4, 9} <= set(shown) and shown[4].values["loss"] == huge
    assert shown[9].epoch == 10.0 and (shown[4].epoch is None) == (abs(huge) == 10**400)
