"""Python's values as hyperparameters."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dethpc.config.sections.hyperparameters import parse_space
from dethpc.sweeps.space import dialect


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ([1, "a"], {"type": "categorical", "vals": [1, "a"]}),
        (range(1, 9), {"type": "int", "minval": 1, "maxval": 8, "count": 8}),
        (range(0, 9, 4), {"type": "categorical", "vals": [0, 4, 8]}),
        ((1, 8), {"type": "int", "minval": 1, "maxval": 8}),
        ((1, 8.0), {"type": "double", "minval": 1, "maxval": 8.0}),
        ((1e-4, 10, "log"), {"type": "log", "base": 10, "minval": math.log10(1e-4), "maxval": 1.0}),
        ({"type": "double", "minval": 0, "maxval": 1}, {"type": "double", "minval": 0, "maxval": 1}),
        ("adam", {"type": "const", "val": "adam"}),
        (None, {"type": "const", "val": None}),
        (math.inf, {"type": "const", "val": "Infinity"}),
        ([1.0, math.nan], {"type": "categorical", "vals": [1.0, "NaN"]}),
        ({"inner": [True]}, {"inner": {"type": "categorical", "vals": [True]}}),
    ],
)
def test_values_of_python_are_hyperparameters(value: Any, form: Any) -> None:
    assert dialect({"x": value}) == {"x": form}
    parse_space(dialect({"x": value}))


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    found = dialect({"a": (numpy.int64(1), numpy.int64(3)), "b": numpy.array([0.5, 1.0]), "c": numpy.float64(2)})
    assert found["a"] == {"type": "int", "minval": 1, "maxval": 3}
    assert (found["b"]["vals"], found["c"]["val"]) == ([0.5, 1.0], 2.0)
    assert all(type(value) is float for value in found["b"]["vals"])


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"lr": ()}, "space['lr']: () is no range"),
        ({"lr": (0.0, 1.0, "log")}, "space['lr']: a logarithmic range is from a number above 0"),
        ({"lr": (1, 2, "lin")}, "space['lr']: (1, 2, 'lin') is no range"),
        ({"lr": ("a", "b")}, "space['lr']: ('a', 'b') is no range"),
        ({"net": {"lr": []}}, "space['net']['lr']: there is nothing to choose from"),
        ({"lr": [1.0, "NaN"]}, "space['lr']: the text 'NaN' would reach the function as a number"),
        ({"lr": (n for n in range(3))}, "space['lr']: Object of type generator"),
        ({1: 2}, "the names of hyperparameters are text, not 1"),
        ([1], "a space is a dict"),
    ],
)
def test_a_mistake_is_told_with_its_name(space: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as told:
        dialect(space)
    assert words in str(told.value)
