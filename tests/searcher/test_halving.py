"""Rungs, brackets and cut-offs, to the letter."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.config.sections.searcher import bracket_rungs
from dethpc.searcher.base import Create, Exit, Note, Searcher, Stop
from dethpc.searcher.halving import Bracket, Rung, share_concurrency, share_trials
from dethpc.searcher.sync_halving import plan_by_budget, plan_by_trials
from tests.searcher.sections import searcher, section


def search(name: str = "async_halving", **settings: Any) -> Searcher:
    defaults = {"name": name, "metric": "loss", "time_metric": "batches", "max_time": 9, "divisor": 3, "num_rungs": 3}
    space = {"x": {"type": "double", "minval": 0, "maxval": 1}}
    made = searcher({**defaults, "max_trials": 10, "max_concurrent_trials": 3, **settings}, space, 1)
    take(made, made.start())
    return made


def take(search: Searcher, actions: list[Any]) -> list[str]:
    """Remember what was decided; returns the reasons of the stops."""
    for action in actions:
        if isinstance(action, Create):
            search.created(action.index, action.hparams, action.search)
        elif isinstance(action, Note):
            search.noted(action.index, action.kind, action.data)
    return [action.reason for action in actions if isinstance(action, Stop)]


def report(search: Searcher, index: int, length: float, value: float) -> list[str]:
    return take(search, search.validated(index, length, value))


@pytest.mark.parametrize(
    ("rungs", "divisor", "full", "lengths"),
    [
        (3, 3.0, 9, [1, 3, 9]),
        (4, 2.0, 10, [1, 2, 5, 10]),
        (1, 3.0, 9, [9]),
        (3, 3.0, 900, [100, 300, 900]),
        (5, 4.0, 64, [1, 1, 4, 16, 64]),
    ],
)
def test_each_rung_is_a_divisor_longer_than_the_one_before(
    rungs: int, divisor: float, full: int, lengths: list[int]
) -> None:
    assert Bracket(rungs, divisor, full).lengths == lengths


@pytest.mark.parametrize(
    ("mode", "rungs"), [("aggressive", [5]), ("standard", [5, 4, 3]), ("conservative", [5, 4, 3, 2, 1])]
)
def test_the_mode_chooses_the_brackets(mode: str, rungs: list[int]) -> None:
    assert bracket_rungs(mode, 5) == rungs


def rungs_of(mode: str, max_rungs: int, divisor: float, length: int, trials: int) -> list[int]:
    times = {"time_metric": "batches", "max_time": length, "max_trials": trials}
    return section(name="adaptive_asha", mode=mode, max_rungs=max_rungs, divisor=divisor, **times).rungs()  # type: ignore[union-attr]


def test_no_more_rungs_than_length_and_trials_can_fill() -> None:
    assert rungs_of("aggressive", 5, 4, 256, 256) == [5]
    assert rungs_of("aggressive", 5, 4, 255, 256) == [4]
    assert rungs_of("aggressive", 5, 4, 256, 16) == [3]
    assert rungs_of("standard", 5, 3, 243, 243) == [5, 4, 3]
    assert rungs_of("conservative", 5, 4, 1, 100) == [1]


def test_brackets_share_trials_so_that_each_trains_about_as_much() -> None:
    assert share_trials(100, 4, [5, 4, 3]) == [71, 22, 7]
    assert share_trials(3, 4, [1]) == [3]
    assert share_trials(2, 4, [3, 2, 1]) == [1, 1]


@given(st.integers(1, 500), st.sampled_from([2, 3, 4]), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_the_shares_add_up_to_the_trials_asked_for(trials: int, divisor: float, rungs: list[int]) -> None:
    shares = share_trials(trials, divisor, sorted(rungs, reverse=True))
    assert sum(shares) == trials and min(shares) >= 1


def test_concurrency_is_split_evenly_and_the_first_brackets_get_the_rest() -> None:
    assert share_concurrency(16, 4, [71, 22, 7]) == [6, 5, 5]
    assert share_concurrency(2, 4, [71, 22, 7]) == [1, 1, 1]
    assert share_concurrency(0, 4, [71, 22, 7]) == [7, 7, 7]
    assert share_concurrency(0, 4, [10, 2]) == [4, 2]


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.9, math.inf]), max_size=60), st.sampled_from([2, 2.5, 3, 4]))
def test_the_cut_off_is_that_of_a_sorted_list(values: list[float], divisor: float) -> None:
    rung = Rung(1, divisor)
    for index, value in enumerate(values):
        entered = sorted(rung.values)
        kept = max(int((len(entered) + 1) / divisor), 1)
        goes_on = sum(other < value for other in entered) < kept  # of equals, the one that comes now counts as better
        assert (value <= rung.cut_off) == goes_on
        rung.add(index, value)
    for index in range(0, len(values), 3):
        rung.remove(index)
    again = Rung(1, divisor)
    for index, value in enumerate(values):
        if index % 3:
            again.add(index, value)
    assert (again.cut_off, len(again)) == (rung.cut_off, len(rung))


def test_the_first_goes_on_and_later_ones_when_they_are_among_the_best_third() -> None:
    halving = search()
    assert report(halving, 0, 1, 0.5) == []
    (why,) = report(halving, 1, 1, 0.6)
    assert why == "rung 0 (batches 1): loss 0.6 is worse than the cut-off 0.5 (best 1 of 2 so far)"
    assert report(halving, 2, 1, 0.4) == []


def test_a_tie_with_the_cut_off_goes_on() -> None:
    halving = search()
    assert report(halving, 0, 1, 0.5) == report(halving, 1, 1, 0.5) == []


def test_one_report_may_clear_several_rungs() -> None:
    halving = search()
    assert report(halving, 0, 5, 0.5) == []
    rungs = halving.describe()["brackets"][0]["rungs"]
    assert [rung["entered"] for rung in rungs] == [1, 1, 0]
    assert report(halving, 1, 2, 0.4) == []
    (why,) = report(halving, 1, 100, 0.3)
    assert "full length" in why and "loss 0.3" in why
    assert [rung["entered"] for rung in halving.describe()["brackets"][0]["rungs"]] == [2, 2, 1]


def test_reports_between_rungs_decide_nothing() -> None:
    halving = search()
    report(halving, 0, 1, 0.5)
    assert halving.validated(0, 1.5, 0.1) == halving.validated(0, 2.9, math.nan) == []


def test_a_crash_ranks_worst_in_the_rung_that_was_not_reached() -> None:
    halving = search(max_concurrent_trials=10)
    report(halving, 0, 1, 0.5)
    for index in (1, 2):
        halving.closed(index, Exit.ERRORED)
    (rung, *_) = halving.describe()["brackets"][0]["rungs"]
    assert rung["entered"] == 3 and rung["cut_off"] == 0.5
    assert [trial["value"] for trial in rung["trials"]] == [0.5, None, None]
    for index in (3, 4):
        halving.closed(index, Exit.ERRORED)
    assert report(halving, 5, 1, 0.6) == [], "two of six go on"


def test_what_a_user_killed_or_what_ended_by_itself_is_in_nobodys_way() -> None:
    halving = search()
    report(halving, 0, 1, 0.5)
    halving.closed(0, Exit.COMPLETED)
    halving.closed(1, Exit.CANCELED)
    rungs = halving.describe()["brackets"][0]["rungs"]
    assert [rung["entered"] for rung in rungs] == [1, 0, 0]


def test_values_are_shown_in_the_metrics_own_sign() -> None:
    halving = search(smaller_is_better=False)
    report(halving, 0, 1, 0.9)
    assert "loss 0.5 is worse than the cut-off 0.9" in report(halving, 1, 1, 0.5)[0]
    rung = halving.describe()["brackets"][0]["rungs"][0]
    assert rung["cut_off"] == 0.9
    assert [(trial["index"], trial["value"]) for trial in rung["trials"]] == [(0, 0.9), (1, 0.5)]


def test_trials_that_get_worse_and_worse_leave_one_at_the_top() -> None:
    halving = search(max_time=900, num_rungs=3)
    stopped: dict[int, float] = {}
    trained = dict.fromkeys(range(3), 0)
    while trained:
        index = min(trained, key=lambda i: (trained[i], i))
        trained[index] += 100
        if report(halving, index, trained[index], float(index)):
            stopped[index] = trained.pop(index)
            halving.closed(index, Exit.COMPLETED)
            before = halving.created_count
            take(halving, halving.exited(index, Exit.COMPLETED))
            trained.update(dict.fromkeys(range(before, halving.created_count), 0))
    assert sorted(stopped.values()) == [100] * 9 + [900]


def test_an_older_bracket_is_planned_from_its_budget_or_its_trials() -> None:
    plan = [(step.length, step.places) for step in plan_by_trials(3, 4, 256, 32)]
    assert plan == [(16, 32), (64, 8), (256, 2)]
    plan = [(step.length, step.places) for step in plan_by_budget(3, 4, 256, 6400)]
    assert plan == [(16, 160), (64, 40), (256, 10)]


@given(st.integers(1, 5), st.sampled_from([2, 3, 4]), st.integers(1, 2000), st.integers(1, 10**5))
def test_a_plan_never_grows_from_rung_to_rung(rungs: int, divisor: float, length: int, amount: int) -> None:
    for plan in (plan_by_budget(rungs, divisor, length, amount), plan_by_trials(rungs, divisor, length, amount)):
        assert [step.places for step in plan] == sorted((step.places for step in plan), reverse=True)
        assert [step.length for step in plan] == sorted(step.length for step in plan)
        assert plan[-1].places >= 1 and plan[-1].length == max(length, 1)


def test_halving_finds_what_random_search_with_the_same_training_misses() -> None:
    """Learning curves that keep their order: with a third of the training, the best of 81 trials is trained to the end."""
    rng = random.Random(5)
    quality = [rng.random() for _ in range(200)]
    halving = search(max_trials=81, max_time=27, num_rungs=4, max_concurrent_trials=81)
    spent, finished = 0, []
    for index in range(81):
        for length in (1, 3, 9, 27):
            spent = spent + length
            if report(halving, index, length, quality[index]):
                finished += [index] * (length == 27)
                break
    assert min(range(81), key=lambda i: quality[i]) in finished
    assert spent < 81 * 27 / 3
