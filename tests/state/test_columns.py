"""What a column's text gives back is what was put in."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.state.columns import _encoded, decoded, decoded_all

FLAT = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMES = st.text(st.characters(), max_size=20)  # halves of surrogate pairs among them


@given(st.dictionaries(NAMES, FLAT | st.lists(FLAT) | st.dictionaries(NAMES, FLAT)) | FLAT)
def test_json_comes_back_as_it_was_and_is_text_that_any_database_takes(value: Any) -> None:
    text = _encoded(value)
    assert text.isascii() and "\0" not in text
    back = decoded(text)
    assert back == value and repr(back) == repr(value), "1.0 is no 1, and -0.0 no 0.0"


@given(st.lists(st.dictionaries(NAMES, FLAT | st.just(math.nan) | st.lists(FLAT)), max_size=5))
def test_many_are_read_as_each_by_itself(values: list[Any]) -> None:
    texts = [_encoded(value) for value in values]
    assert repr(decoded_all(texts)) == repr([decoded(text) for text in texts])


@pytest.mark.parametrize("text", ['{"\\ud800":1.0}', "[" * 300 + "]" * 300, "1" * 4000])
def test_what_only_json_reads_is_read_among_many(text: str) -> None:
    assert decoded_all(["{}", text]) == [{}, json.loads(text)]


def test_what_is_no_number_is_spelled_as_json_reads_it() -> None:
    found = decoded(_encoded({"loss": math.nan, "most": math.inf, "least": -math.inf}))
    assert math.isnan(found["loss"]) and (found["most"], found["least"]) == (math.inf, -math.inf)
    assert json.loads(_encoded(math.inf)) == math.inf


@pytest.mark.parametrize("value", [{"x": {1}}, {"x": b"bytes"}, {"x": object()}])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        _encoded(value)
