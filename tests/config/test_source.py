"""YAML to data with places."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dethpc.config.loading import load
from dethpc.config.source import MAX_VALUES, dump, read, read_value
from dethpc.errors import ConfigError, dotted, path_of

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(data=st.dictionaries(st.text(), values, max_size=5))
def test_what_is_dumped_is_read_again(data: dict[str, Any]) -> None:
    source, problems = read(dump(data), "x")
    assert problems == []
    assert source.data == data


@given(text=st.text())
def test_no_text_does_more_than_cause_problems(text: str) -> None:
    read(text, "x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("1.e2", 100.0),
        (".5", 0.5),
        ("-1", -1),
        ("0x10", 16),
        ("0o17", 15),
        ("010", 10),
        ("1_000", 1000),
        ("yes", "yes"),
        ("off", "off"),
        ("true", True),
        ("05:30:00", "05:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("~", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("e3", "e3"),
        ("-", "-"),
    ],
)
def test_scalars_follow_yaml_12(text: str, value: Any) -> None:
    read_back, _, problems = read_value("- " + text if text != "-" else "'-'", "x")
    assert problems == []
    found = read_back[0]
    assert found == value and type(found) is type(value)


def test_places_are_the_lines_of_keys_and_items() -> None:
    source, _ = read("a: 1\nb:\n  c:\n    - x\n    - y: 2\n", "f.yaml")
    assert source.place(("a",)) == ("f.yaml", 1)
    assert source.place(("b", "c")) == ("f.yaml", 3)
    assert source.place(("b", "c", 1)) == ("f.yaml", 5)
    assert source.place(("b", "c", 1, "y", "nothing")) == ("f.yaml", 5)


def test_anchors_and_merge_keys_work() -> None:
    text = "base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo: *b\nthree: {<<: [{z: 1}, *b]}\n"
    source, problems = read(text, "x")
    assert problems == []
    assert source.data["one"] == {"x": 1, "y": 3}
    assert source.data["two"] == {"x": 1, "y": 2}
    assert source.data["three"] == {"x": 1, "y": 2, "z": 1}
    assert source.place(("one", "y")).line == 4


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "there must be ',' or ']' here, not ':'"),
        ("a: 1\n\tb: 2\n", 2, "the line is indented with a tab; YAML needs spaces"),
        ("a: b: c\n", 1, "indent the line like those beside it, or put a text with ': ' in quotes"),
        ("a: {b: 1\n", 2, "the file ends inside { ... }: add the closing }"),
        ("a: [1\n", 2, "the file ends inside [ ... ]: add the closing ]"),
        ('a: "x\n', 2, "the file ends inside quotes: add the closing one"),
        ('a: "x" y\n', 1, "there must be a new line here, not more text"),
        ("a: @x\n", 1, "a value that begins with '@' must be in quotes"),
        ("a: 1\nb: 2\na: 3\n", 3, "twice, also on line 1"),
        ("a:\n  b: *nowhere\n", 2, "undefined alias 'nowhere'"),
        ("a: &x\n  b: *x\n", 1, "stands inside what it stands for"),
        ("a: !!python/object:os.system {}\n", 1, "tag"),
        ("a: !custom 1\n", 1, "tag"),
        ("x: 1\na: .inf\n", 2, ".inf"),
        ("x: 1\na: 1e999\n", 2, "1e999"),
        ("a: !!int x\n", 1, "'x'"),
        ("? [a, b]\n: 1\n", 1, "key"),
        ("- 1\n- 2\n", 1, "a list"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a: \x07\n", 1, "#x0007"),
        ("a: 1\n<<: 3\n", 2, "merge"),
        ('a: 1\nb: ["x\\udcff"]\n', 2, "UTF-8"),
        ('a: 1\n"x\\ud800": 2\n', 2, "UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, words: str) -> None:
    _, problems = read(text, "f.yaml")
    assert [problem.line for problem in problems] == [line]
    assert words in str(problems[0])
    assert str(problems[0]).startswith(f"f.yaml:{line}: ")


def test_a_character_that_json_escapes_as_a_pair_is_one() -> None:
    source, problems = read(json.dumps({"name": "🦊", "🦊": ["é🦊"]}), "f.yaml")
    assert not problems and source.data == {"name": "🦊", "🦊": ["é🦊"]}


@pytest.mark.slow
def test_a_small_text_cannot_unfold_into_gigabytes() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    _, problems = read("\n".join(lines), "x")
    assert f"{MAX_VALUES:,}" in str(problems[0])


@pytest.mark.slow
def test_endless_nesting_is_a_problem_not_a_crash() -> None:
    _, problems = read("a: " + "[" * 5_000, "x")
    assert problems


def test_an_empty_document_is_an_empty_mapping() -> None:
    assert read("", "x")[0].data == {}
    assert read("# nothing\n", "x") == (read("", "x")[0], [])


@pytest.mark.parametrize("path", [("a",), ("a", "b_c"), ("a", 0), ("a", 0, "b", 12, 3)])
def test_a_field_of_a_message_leads_back_to_its_path(path: tuple[str | int, ...]) -> None:
    assert path_of(dotted(path)) == path


def test_a_field_that_no_path_of_names_has_stays_one_step() -> None:
    assert path_of("a[b].c") == ("a[b].c",)


def test_a_large_text_is_refused_by_its_size_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "compose", None)
    _, problems = read("a: 1\n" * 60_000, "config")
    assert "292 KiB" in str(problems[0]) and "at most 256 KiB" in str(problems[0])


def test_of_very_many_mistakes_the_first_are_told_and_the_rest_counted() -> None:
    with pytest.raises(ConfigError) as refused:
        load(
            "name: n\nentrypoint: x\nsearcher: {name: single, metric: l}\n" + "".join(f"x{n}: 1\n" for n in range(300))
        )
    assert len(refused.value.problems) == 101 and "200 more mistakes" in str(refused.value.problems[-1])


@pytest.mark.parametrize("opened, closed", ["[]", ("{a: ", "}")])
@pytest.mark.slow
def test_a_document_has_a_hundred_levels_at_most(opened: str, closed: str) -> None:
    assert not read("a: " + opened * 99 + "1" + closed * 99, "x")[1]
    for levels in (150, 252, 2_000):
        _, problems = read("a: " + opened * levels + "1" + closed * levels, "x")
        assert "more than 100 levels" in str(problems[0])


def test_keys_of_the_users_own_hold_what_anchors_stand_at() -> None:
    source, problems = read("x-common: &c {lr: 0.1}\nx-: 3\nhyperparameters: {<<: *c, x-inner: 1}\n", "f.yaml")
    assert problems == [] and source.data == {"hyperparameters": {"lr": 0.1, "x-inner": 1}}
