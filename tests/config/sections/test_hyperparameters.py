"""Hyperparameter spaces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.config.sections.hyperparameters import (
    Categorical,
    Const,
    Double,
    Int,
    Log,
    Space,
    parse_space,
    plain,
    read_space,
)
from dethpc.errors import ConfigError

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6)
count = st.none() | st.integers(1, 100)
ranges = st.tuples(finite, finite).filter(lambda pair: pair[0] < pair[1])
whole_ranges = st.tuples(st.integers(), st.integers()).filter(lambda pair: pair[0] < pair[1])
anything = st.none() | st.booleans() | st.integers() | finite | st.text()
hyperparameters = st.one_of(
    st.builds(Const, anything | st.lists(anything)),
    st.builds(Categorical, st.lists(anything, min_size=1).map(tuple)),
    st.builds(lambda pair, n: Double(*pair, n), ranges, count),
    st.builds(lambda pair, n: Int(*pair, n), whole_ranges, count),
    st.builds(lambda pair, base, n: Log(*pair, base, n), ranges, st.floats(0.1, 100), count),
)
names = st.text(min_size=1).filter(lambda name: name != "type")
spaces = st.recursive(
    st.dictionaries(names, hyperparameters, max_size=3), lambda inner: st.dictionaries(names, inner, max_size=3)
)


@given(space=spaces)
def test_a_space_survives_its_plain_form(space: Space) -> None:
    assert parse_space(plain(space)) == space


@given(
    raw=st.dictionaries(
        st.text(),
        st.recursive(
            anything,
            lambda inner: (
                st.dictionaries(st.sampled_from(["type", "minval", "vals", "a"]), inner, max_size=3)
                | st.lists(inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
def test_any_data_is_a_space_or_a_list_of_mistakes(raw: dict[str, Any]) -> None:
    space, problems = read_space(raw)
    assert problems or parse_space(plain(space)) == space


def test_every_form_is_understood() -> None:
    raw = {
        "batch": 64,
        "nothing": None,
        "layers": [1, 2],
        "explicit": {"type": "const", "val": {"a": 1}},
        "opt": {"type": "categorical", "vals": ["sgd", None, {"a": 1}]},
        "net": {
            "width": {"type": "int", "minval": 1, "maxval": 1e2},
            "deep": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        },
        "lr": {"type": "log", "minval": -5, "maxval": -1, "base": 10, "count": 3},
        "empty": {},
    }
    assert parse_space(raw) == {
        "batch": Const(64),
        "nothing": Const(None),
        "layers": Const([1, 2]),
        "explicit": Const({"a": 1}),
        "opt": Categorical(("sgd", None, {"a": 1})),
        "net": {"width": Int(1, 100), "deep": {"x": Double(0, 1)}},
        "lr": Log(-5, -1, 10, 3),
        "empty": {},
    }


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        ({"type": "categorial", "vals": [1]}, "x.type", "did you mean 'categorical'"),
        ({"type": {"type": "int", "minval": 1, "maxval": 2}}, "x.type", "itself be named 'type'"),
        ({"type": "categorical", "vals": []}, "x.vals", "at least one"),
        ({"type": "categorical", "vals": "abc"}, "x.vals", "a list"),
        ({"type": "double", "minval": 0}, "x.maxval", "missing (type"),
        ({"type": "double", "minval": 1, "maxval": 1}, "x.maxval", "greater than minval"),
        ({"type": "double", "minval": "a", "maxval": 1}, "x.minval", "a number"),
        ({"type": "double", "minval": 0, "maxval": float("inf")}, "x.maxval", "a number"),
        ({"type": "int", "minval": 0.5, "maxval": 2}, "x.minval", "a whole number"),
        ({"type": "int", "minval": True, "maxval": 2}, "x.minval", "a whole number"),
        ({"type": "int", "minval": 0, "maxval": 2, "count": 0}, "x.count", ">= 1"),
        ({"type": "log", "minval": 0, "maxval": 2, "base": 0}, "x.base", "> 0"),
        ({"type": "log", "minval": 0, "maxval": 2}, "x.base", "missing (type"),
        ({"type": "int", "minval": 0, "maxvalue": 2, "maxval": 3}, "x.maxvalue", "did you mean 'maxval'"),
        ({"type": "const", "vals": 2}, "x.val", "missing (type"),
    ],
)
def test_what_is_wrong_is_said(raw: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_space({"x": raw})
    assert any(problem.field == field and words in str(problem) for problem in caught.value.problems)


def test_all_mistakes_are_found_at_once_however_deep() -> None:
    bad = {"type": "int", "minval": "a", "maxval": "b"}
    _, problems = read_space({"a": bad, "b": {"c": {"d": bad}}})
    assert [m.path for m in problems] == [
        ("a", "minval"),
        ("a", "maxval"),
        ("b", "c", "d", "minval"),
        ("b", "c", "d", "maxval"),
    ]


def test_a_grid_needs_counts() -> None:
    raw = {"a": {"b": {"type": "int", "minval": 0, "maxval": 2}}, "c": {"type": "categorical", "vals": [1]}, "d": 1}
    assert read_space(raw)[1] == []
    assert [m.path for m in read_space(raw, grid=True)[1]] == [("a", "b", "count")]
