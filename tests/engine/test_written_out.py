"""What is written out for the sake of its speed makes what ``dataclasses.replace`` makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.facts import Attempt, Trial
from dethpc.engine import written_out
from dethpc.engine.replace import replace as quickly

COPIES: list[tuple[Callable[..., Any], type]] = [
    (written_out.measured, Trial),
    (written_out.validated, Trial),
    (written_out.told, Attempt),
]


def rows(kind: type) -> st.SearchStrategy[Any]:
    """Rows whose fields all differ, whatever their types: a copy moves values, and looks at none."""
    return st.permutations(range(len(fields(kind)))).map(lambda values: kind(*values))


def test_every_copy_is_held_to_it() -> None:
    made = [each for _, each in inspect.getmembers(written_out, inspect.isfunction)]
    assert {each.__name__ for each in made} == {copy.__name__ for copy, _ in COPIES}


@pytest.mark.parametrize(("copy", "kind"), COPIES)
@given(data=st.data())
def test_a_copy_is_the_row_with_what_it_was_given_and_all_else(
    copy: Callable[..., Any], kind: type, data: st.DataObject
) -> None:
    row = data.draw(rows(kind))
    _, *names = inspect.signature(copy).parameters
    changes = {name: data.draw(st.integers(min_value=1000)) for name in names}
    assert copy(row, *changes.values()) == copy(row, **changes) == replace(row, **changes) == quickly(row, **changes)
