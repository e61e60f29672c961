"""What is said of hyperparameters and the metric."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.insight.hyperparameters import LEAST, MOST_CELLS, heat_map, importance

SOME = random.Random(3)


def tried(metric: Any, n: int = 200) -> list[tuple[dict[str, Any], float]]:
    rows = []
    for _ in range(n):
        hparams = {
            "lr": 10 ** SOME.uniform(-4, -1),
            "net": {"layers": SOME.randint(1, 4)},
            "activation": SOME.choice(["relu", "tanh", "gelu"]),
            "noise": SOME.random(),
            "fixed": 7,
        }
        rows.append((hparams, float(metric(hparams))))
    return rows


def shares(rows: list[tuple[dict[str, Any], float]]) -> dict[str, float]:
    return {each.name: each.share or 0.0 for each in importance(rows)}


def test_what_decides_the_metric_is_the_most_important() -> None:
    found = importance(tried(lambda h: h["lr"]))
    assert found[0].name == "lr" and found[0].share == pytest.approx(1, abs=0.05)
    assert found[0].direction == pytest.approx(1) and "fixed" not in shares(tried(lambda h: h["lr"]))
    assert all((each.share or 0) < 0.1 for each in found[1:])


def test_a_best_value_in_the_middle_is_seen() -> None:
    """A correlation alone would say that the learning rate does not matter."""
    (lr, *rest) = importance(tried(lambda h: abs(math.log10(h["lr"]) + 2.5)))
    assert lr.name == "lr" and (lr.share or 0) > 0.8 and abs(lr.direction or 0) < 0.3
    assert all((each.share or 0) < 0.1 for each in rest)


def test_each_value_of_a_small_grid_counts_by_itself() -> None:
    """Halves of a grid would say that a best value between two others does not matter."""
    far = {0.001: 3, 0.003: 1, 0.01: 0, 0.1: 3}
    rows = [({"lr": lr, "width": width}, far[lr] - width / 1000) for lr in far for width in (16, 32, 64)]
    (lr, width) = importance(rows)
    assert lr.name == "lr" and (lr.share or 0) > 0.8 and width.share == 0


def test_what_is_no_number_counts_by_its_values() -> None:
    offsets = {"relu": 0, "tanh": 10, "gelu": 5}
    (first, *_) = importance(tried(lambda h: offsets[h["activation"]] + h["noise"]))
    assert first.name == "activation" and (first.share or 0) > 0.8 and first.direction is None


def test_chance_explains_nothing() -> None:
    assert all(share < 0.1 for share in shares(tried(lambda h: SOME.random())).values())


def test_a_transformation_of_the_metric_changes_nothing() -> None:
    rows = tried(lambda h: h["lr"] + 0.01 * h["net"]["layers"])
    assert shares(rows) == shares([(hparams, math.exp(100 * metric)) for hparams, metric in rows])


def test_too_few_trials_say_nothing() -> None:
    assert {each.share for each in importance(tried(lambda h: h["lr"], LEAST - 1))} == {None}
    assert importance([]) == [] and importance([({"lr": 1}, math.nan)] * 20) == []


def test_a_map_has_a_cell_for_each_two_values() -> None:
    rows = [({"a": a, "b": b}, 10.0 * a + len(b) + extra) for a in (1, 2) for b in ("x", "yy") for extra in (0, 2)]
    found = heat_map(rows, "a", "b", smaller_is_better=True)
    assert found.columns == ["1", "2"] and found.rows == ["yy", "x"]
    cell = found.cells[0][1]
    assert cell is not None and (cell.trials, cell.mean, cell.best) == (2, 23.0, 22.0)
    best = heat_map(rows, "a", "b", smaller_is_better=False).cells[0][1]
    assert best is not None and best.best == 24.0


VALUES = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.text(max_size=2),
    st.booleans(),
    st.just(10**400),
)


@given(st.lists(st.tuples(st.fixed_dictionaries({"a": VALUES, "b": VALUES}), st.floats()), max_size=60))
def test_whatever_was_tried_the_numbers_are_in_their_range(rows: list[tuple[dict[str, Any], float]]) -> None:
    for each in importance(rows):
        assert each.share is None or 0 <= each.share <= 1
        assert each.direction is None or -1.001 <= each.direction <= 1.001
    found = heat_map(rows, "a", "b", True)
    assert len(found.rows) <= MOST_CELLS and len(found.columns) <= MOST_CELLS
    assert all(len(line) == len(found.columns) for line in found.cells) and len(found.cells) == len(found.rows)


def test_null_is_a_value_like_any_other() -> None:
    tried = [({"decay": None if n % 2 else "cosine", "on": n % 4 < 2}, float(n % 2)) for n in range(20)]
    assert {each.name: each.trials for each in importance(tried)} == {"decay": 20, "on": 20}
    heat = heat_map(tried, "decay", "on", smaller_is_better=True)
    assert heat.columns == ["cosine", "null"] and heat.rows == ["true", "false"]
    assert sum(cell.trials for row in heat.cells for cell in row if cell) == 20
