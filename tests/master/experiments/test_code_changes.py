"""How two context directories differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.errors import ContextError
from dethpc.master.experiments import code_changes
from dethpc.master.experiments.code_changes import changes
from tests.context_archives import packed


def test_lines_that_differ_are_told_and_the_rest_is_not() -> None:
    before = packed({"same.py": b"x\n", "train.py": b"a\nb\nc\n", "gone.py": b"1\n"})
    after = packed({"same.py": b"x\n", "train.py": b"a\nB\nc\n", "new.py": b"2\n"})
    found, more = changes(before, after)
    assert [(each.path, each.kind) for each in found] == [
        ("gone.py", "removed"),
        ("new.py", "added"),
        ("train.py", "changed"),
    ]
    assert found[2].diff.splitlines() == ["@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"] and more == 0
    assert changes(before, before) == ([], 0)


def test_what_cannot_be_compared_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_changes, "MOST_BYTES", 100)
    monkeypatch.setattr(code_changes, "MOST_LINES", 10)
    before = packed({"binary": b"\0a", "large": b"a" * 200, "long": b"a\n" * 5, "ends": b"a\r\n"})
    after = packed({"binary": b"\0b", "large": b"b" * 200, "long": b"b\n" * 20, "ends": b"a\n", "empty": b""})
    found = {each.path: each for each in changes(before, after)[0]}
    assert "binary" in found["binary"].why and "too large" in found["large"].why and "too many" in found["long"].why
    assert "ends of lines" in found["ends"].why and found["empty"].why == "empty"
    assert not any(each.diff for each in found.values())


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_changes, "MOST_FILES", 3)
    monkeypatch.setattr(code_changes, "MOST_ALL", 25)
    found, more = changes(packed({}), packed({f"{n}": b"0123456789" for n in range(5)}))
    assert [each.path for each in found] == ["0", "1", "2"] and more == 2
    assert [bool(each.diff) for each in found] == [True, True, False]


def test_a_damaged_archive_is_said() -> None:
    with pytest.raises(ContextError, match="damaged"):
        changes(packed({"a": b"1"}), packed({"b": b"x" * 9000})[:-20])


@given(
    st.dictionaries(st.sampled_from("abc"), st.binary(max_size=40)),
    st.dictionaries(st.sampled_from("abc"), st.binary(max_size=40)),
)
def test_what_differs_and_nothing_else_is_named(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    found, _ = changes(packed(before), packed(after))
    assert {each.path for each in found} == {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
    assert all(bool(each.diff) != bool(each.why) for each in found)
