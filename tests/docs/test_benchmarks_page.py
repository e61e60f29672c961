"""docs/benchmarks.md is what ``benchmarks`` measured; the frame computes intervals and verdicts right. Nothing is timed here."""

from __future__ import annotations

import ast
import json
import random
import statistics

import pytest

from benchmarks import BENCHES, ENDURANCE, FRAME
from benchmarks.__main__ import RESULTS
from benchmarks.frame import Figure, Row, alternate, median, number, ratio
from benchmarks.page import DOCS, made
from benchmarks.plot import Point, plot

FOLDER = RESULTS.parent
NAMES = [name for group in BENCHES.values() for name in group]


def test_every_module_of_benchmarks_is_in_the_list() -> None:
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "__main__"}
    assert modules <= {*NAMES, *ENDURANCE, *FRAME}, "say in benchmarks/__init__.py what these are"
    assert {*ENDURANCE, *FRAME} <= modules
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", [name for name in NAMES if (FOLDER / f"{name}.py").exists()])
def test_every_benchmark_is_a_command_in_the_common_frame(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "what is measured, and how"
    assert "run(__doc__, rows" in text


def test_the_page_is_what_the_script_makes_of_the_figures() -> None:
    files = made(json.loads(RESULTS.read_text()))
    assert {path.name for path in files if path.suffix == ".svg"} == {
        path.name for path in (DOCS / "benchmarks").iterdir()
    }
    for path, text in files.items():
        assert (DOCS / path).read_text() == text, f"python -m benchmarks.page makes another {path}"


def test_what_was_measured_is_still_measured() -> None:
    assert json.loads(RESULTS.read_text()).keys() <= set(NAMES), "take out of benchmarks/results.json what is gone"


def test_an_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    draw, held = random.Random(1), 0
    for _ in range(50):
        figure = median([draw.gauss(5, 1) for _ in range(31)])
        assert figure.low is not None and figure.high is not None and figure.low <= figure.middle <= figure.high
        held += figure.low <= 5 <= figure.high
    assert 43 <= held <= 50


def test_the_interval_of_equal_values_is_that_value_and_of_few_values_is_none() -> None:
    assert median([3.0] * 9) == Figure(3.0, 3.0, 3.0)
    assert median([1.0, 2.0]) == Figure(1.5)
    assert median([5.0, 1.0, 3.0], statistics.mean).middle == 3.0


def test_a_ratio_is_of_neighbours() -> None:
    assert ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0]) == Figure(2.0, 2.0, 2.0)
    with pytest.raises(ValueError):
        ratio([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("figure", "rule", "verdict"),
    [
        (Figure(5.0), "<=", "met"),
        (Figure(5.0), ">=", "met"),
        (Figure(5.1), "<=", "not met"),
        (Figure(4.0, 3.0, 6.0), "<=", "not shown"),
        (Figure(6.0, 4.0, 7.0), "<=", "not shown"),
        (Figure(6.0, 5.5, 7.0), "<=", "not met"),
        (Figure(6.0, 5.5, 7.0), ">=", "met"),
    ],
)
def test_a_limit_is_met_if_the_whole_interval_keeps_to_it(figure: Figure, rule: str, verdict: str) -> None:
    assert Row("a", "ms", figure, limit=5.0, rule=rule).verdict == verdict  # type: ignore[arg-type]
    assert Row("a", "ms", Figure(99.0), {"b": Figure(1.0)}, 5.0, figure, rule, "ratio").verdict == verdict  # type: ignore[arg-type]


def test_windows_take_turns_so_that_none_is_always_first() -> None:
    calls: list[str] = []
    found = alternate({name: lambda name=name: calls.append(name) for name in "ab"}, rounds=20, warm=2)
    assert {name: len(values) for name, values in found.items()} == {"a": 20, "b": 20}
    rounds = ["".join(calls[at : at + 2]) for at in range(0, len(calls), 2)]
    assert all(here == there[::-1] for here, there in zip(rounds[::2], rounds[1::2], strict=True))  # ABBA or BAAB
    assert {"ab", "ba"} == set(rounds[::2])


def test_numbers_have_three_digits_and_no_exponents() -> None:
    assert [number(value) for value in (0, 0.00012345, 0.5, 12.345, 1234.5, 123456)] == [
        "0", "0.000123", "0.5", "12.3", "1,234", "123,456",
    ]  # fmt: skip


def test_a_plot_shows_every_point_with_its_interval() -> None:
    drawn = plot([Point("<a>", Figure(2.0, 1.0, 4.0), "met"), Point("b", Figure(0.0))], "less", "more")
    assert drawn.count("<circle") == 2 and "&lt;a&gt;" in drawn and "2 (1 to 4)" in drawn
