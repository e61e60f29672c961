"""What a function of a sweep may return."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.sweeps.call import number_of

numpy = pytest.importorskip("numpy")


@pytest.mark.parametrize(
    ("value", "number"), [(numpy.float32(0.5), 0.5), (numpy.array([0.5]), 0.5), (3, 3), (None, None)]
)
def test_a_scalar_of_numpy_is_its_number(value: Any, number: Any) -> None:
    assert number_of(value) == number


def test_an_array_of_several_is_none() -> None:
    assert number_of(several := numpy.zeros(2)) is several
