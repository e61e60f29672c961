from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.searcher.base import Create, Exit, Searcher
from tests.example_counts import examples
from tests.searcher.sections import searcher as made

SPACE: dict[str, Any] = {
    "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10, "count": 4},
    "width": {"type": "int", "minval": 1, "maxval": 3, "count": 10},
    "optimizer": {
        "name": {"type": "categorical", "vals": ["sgd", "adam"]},
        "momentum": {"type": "double", "minval": 0.0, "maxval": 1.0, "count": 3},
    },
    "batch": 32,
}


def searcher(name: str, space: dict[str, Any] | None = None, seed: int = 1, **more: Any) -> Searcher:
    return made({"name": name, "metric": "loss", "max_trials": 20, **more}, SPACE if space is None else space, seed)


def run_to_the_end(search: Searcher, rng: random.Random, invalid: float = 0.0) -> list[dict[str, Any]]:
    """Trials end in random order; returns the hyperparameters by index."""
    made: dict[int, dict[str, Any]] = {}
    open_trials: list[int] = []

    def take(actions: Any) -> None:
        for action in actions:
            assert isinstance(action, Create)
            assert action.index == len(made)
            made[action.index] = action.hparams
            open_trials.append(action.index)
            search.created(action.index, action.hparams, action.search)

    take(search.start())
    while open_trials:
        index = open_trials.pop(rng.randrange(len(open_trials)))
        how = Exit.INVALID_HP if rng.random() < invalid else Exit.COMPLETED
        search.closed(index, how)
        take(search.exited(index, how))
    return [made[i] for i in range(len(made))]


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(1, 30), st.integers(1, 8), st.integers(0, 1000))
def test_the_same_seed_gives_the_same_trials_in_whatever_order_they_end(
    seed: int, trials: int, concurrent: int, order: int
) -> None:
    first, second = (
        run_to_the_end(
            searcher("random", seed=seed, max_trials=trials, max_concurrent_trials=concurrent), random.Random(shuffle)
        )
        for shuffle in (order, order + 1)
    )
    assert first == second
    assert len(first) == trials


def test_random_search_never_has_more_trials_at_a_time_than_allowed() -> None:
    assert len(searcher("random", max_concurrent_trials=3).start()) == 3


def test_other_seeds_give_other_trials() -> None:
    assert searcher("random", seed=1).start() != searcher("random", seed=2).start()


def test_the_order_of_names_in_the_file_does_not_matter() -> None:
    reordered = dict(reversed(SPACE.items()))
    assert searcher("random").start() == searcher("random", reordered).start()


def test_draws_lie_in_their_ranges() -> None:
    for hparams in run_to_the_end(searcher("random", max_trials=200), random.Random(0)):
        assert 1e-4 <= hparams["lr"] <= 1e-1
        assert hparams["width"] in (1, 2, 3)
        assert hparams["optimizer"]["name"] in ("sgd", "adam")
        assert 0 <= hparams["optimizer"]["momentum"] <= 1
        assert hparams["batch"] == 32


def test_invalid_draws_are_replaced() -> None:
    search = searcher("random", max_trials=10)
    run_to_the_end(search, random.Random(3), invalid=0.4)
    assert search.invalid_count > 0
    assert search.created_count == 10 + search.invalid_count


def test_a_space_without_a_valid_point_is_given_up() -> None:
    search = searcher("random", max_trials=2)
    assert len(run_to_the_end(search, random.Random(3), invalid=1.0)) == 22


def test_grid_visits_every_point_once() -> None:
    points = run_to_the_end(searcher("grid", max_concurrent_trials=5), random.Random(0))
    assert len(points) == 4 * 3 * 2 * 3
    assert len({repr(point) for point in points}) == len(points)
    assert [round(lr, 6) for lr in sorted({point["lr"] for point in points})] == [0.0001, 0.001, 0.01, 0.1]
    assert {point["width"] for point in points} == {1, 2, 3}, "fewer integers than count: each one once"


@pytest.mark.parametrize(("method", "options"), [("grid", {}), ("random", {"max_trials": 1}), ("single", {})])
def test_a_mapping_that_holds_nothing_reaches_every_trial(method: str, options: dict[str, Any]) -> None:
    space = {"lr": 0.1, "model": {"extras": {}, "layers": 2}}
    (point,) = run_to_the_end(searcher(method, space, **options), random.Random(0))
    assert point == space


@pytest.mark.parametrize(
    ("hp", "middle"),
    [
        ({"type": "double", "minval": 0.0, "maxval": 1.0, "count": 1}, 0.5),
        ({"type": "int", "minval": 2, "maxval": 4, "count": 1}, 3),
        ({"type": "log", "minval": -2, "maxval": 0, "base": 10, "count": 1}, 0.1),
    ],
)
def test_a_count_of_one_gives_the_middle(hp: dict[str, Any], middle: float) -> None:
    (point,) = run_to_the_end(searcher("grid", {"x": hp}), random.Random(0))
    assert point["x"] == pytest.approx(middle)


def test_single_makes_one_trial() -> None:
    assert len(run_to_the_end(searcher("single", {"lr": 0.1}), random.Random(0))) == 1


def test_progress_counts_open_trials_by_what_they_say() -> None:
    search = searcher("random", max_trials=4, max_concurrent_trials=4)
    for action in search.start():
        assert isinstance(action, Create)
        search.created(action.index, action.hparams, action.search)
    search.closed(0, Exit.COMPLETED)
    search.advanced(1, 0.5)
    assert search.progress == pytest.approx(1.5 / 4)


def test_a_grid_over_large_integers_and_decimal_fractions_is_exact() -> None:
    ends = 2**60 + 1, 2**60 + 4
    whole = {"type": "int", "minval": ends[0], "maxval": ends[1], "count": 4}
    points = run_to_the_end(searcher("grid", {"x": whole}), random.Random(0))
    assert sorted(point["x"] for point in points) == list(range(ends[0], ends[1] + 1))
    tenths = {"type": "double", "minval": 0, "maxval": 0.3, "count": 4}
    points = run_to_the_end(searcher("grid", {"x": tenths}), random.Random(0))
    assert sorted(point["x"] for point in points) == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("value", "up", "moved"), [(50, True, 55), (50, False, 45), (10 * 2**60 + 10, True, 11 * 2**60 + 11)]
)
def test_a_population_moves_integers_exactly(value: int, up: bool, moved: int) -> None:
    hp = {"type": "int", "minval": 1, "maxval": 2**70}
    section = {
        "name": "pbt",
        "population_size": 4,
        "num_rounds": 2,
        "length_per_round": {"batches": 1},
        "replace_function": {"truncate_fraction": 0.25},
        "explore_function": {"resample_probability": 0.0, "perturb_factor": 0.1},
    }
    search: Any = made(section, {"x": hp}, 0)
    assert search._perturbed(search._space["x"], value, up=up) == moved
