"""Which files of a checkpoint a pattern takes: found in one pass, however many ``**`` it has."""

from __future__ import annotations

from typing import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.storage.globs import _matches

PARTS = st.lists(st.sampled_from(["a", "b", ".h", "ab"]), max_size=6)
PATTERN = st.lists(st.sampled_from(["**", "*", "a", "a*", ".h", ".*", "?"]), max_size=6)


def tried_one_by_one(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """The meaning of a pattern, by a way that takes years for many ``**``."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        folder = bool(parts) and not parts[0].startswith(".")
        return tried_one_by_one(parts, pattern[1:]) or (folder and tried_one_by_one(parts[1:], pattern))
    return bool(parts) and _matches(parts[:1], pattern[:1]) and tried_one_by_one(parts[1:], pattern[1:])


@given(PARTS, PATTERN)
@settings(max_examples=300, deadline=None)
def test_a_path_matches_as_its_pattern_says(parts: list[str], pattern: list[str]) -> None:
    assert _matches(parts, pattern) == tried_one_by_one(parts, pattern)


def test_many_stars_are_no_matter_of_years() -> None:
    assert not _matches(["a"] * 60, ["**"] * 60 + ["b"])
    assert _matches(["a"] * 60 + ["b"], ["**", "a"] * 30 + ["**", "b"])
