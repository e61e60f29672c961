"""Numbers that JSON, or a float, cannot have."""

from __future__ import annotations

import math

import pytest

from dethpc.domain.text.not_finite import as_float, numbers_in, spelled


@pytest.mark.parametrize(
    "value, text",
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (10**400, "Infinity"),
        (-(10**400), "-Infinity"),
    ],
)
def test_what_is_no_finite_float_is_spelled_as_determined_spells_it(value: float, text: str) -> None:
    assert spelled(value) == text
    assert as_float(value) == numbers_in(text) or math.isnan(value)


@pytest.mark.parametrize("value", [0.5, 2**63, -(2**1023), 1e308])
def test_what_is_one_stays_as_it_is(value: float) -> None:
    assert spelled(value) == as_float(value) == value and type(spelled(value)) is type(value)
