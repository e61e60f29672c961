"""What the pages of an experiment offer and draw: curves, rungs, and what may go on."""

from __future__ import annotations

import html
import json
import re

import pytest

from dethpc.domain.states import State
from dethpc.web.pages import code, search
from tests.master.conftest import CONFIG, Served, experiment, trained, trial
from tests.web.conftest import Visitor


def test_any_metric_of_any_group_is_drawn_and_pinned_trials_are_among_its_curves(visitor: Visitor) -> None:
    def curves(query: str) -> set[int]:
        text = visitor.get(f"experiments/1/series.json?group=training&name=loss&most=1{query}").text
        return {curve["id"] for curve in json.loads(text)["trials"]}

    shown = visitor.get("experiments/1?metric=training.loss&most=50&pin=2,x,2").text
    assert '<optgroup label="training">' in shown and '<option value="validation.accuracy">' in shown
    assert '<option value="training.loss" selected>' in shown and "<option selected>50<" in shown
    assert "series.json?group=training&amp;name=loss&amp;most=50" in shown and 'name="pin" value="2"' in shown
    assert "name=loss" in visitor.get("experiments/1?metric=nothing.known&most=7").text
    best = curves("")
    assert len(best) == 1 and curves("&pin=2,3,4,99") == {*best, 2, 3}, "4 is of another experiment"


def test_rungs_are_drawn_with_what_went_on_and_what_was_stopped() -> None:
    def rung(length: float, entered: int, went: int) -> dict[str, object]:
        return {"length": length, "entered": entered, "wentOn": went, "cutOff": 0.25}

    rungs = [rung(4.0, 8, 2), rung(16.0, 1, 0)]
    drawn = search.picture(rungs, 8, "batches", over=True)
    first, last = drawn["bars"]
    assert (first["went"], first["stayed"], first["kind"]) == (search.HEIGHT / 4, search.HEIGHT * 3 / 4, "stopped")
    assert (last["stayed"], last["kind"], last["length"]) == (search.HEIGHT / 8, "finished", "16 batches")
    assert first["told"] == "4 batches: 8 came this far, 2 went on, 6 were stopped; the cut-off is 0.25"
    (band,) = drawn["bands"]
    assert band.split()[2] == f"{search.STEP},{search.HEAD + search.HEIGHT / 8}", "no higher than who came there so far"
    going = search.picture(rungs, 0, "", over=False)
    assert going["bars"][0]["kind"] == "here" and "6 are not further" in going["bars"][0]["told"]


@pytest.mark.parametrize(
    ("state", "searcher", "offered"),
    [
        (State.COMPLETED, "random", False),
        (State.COMPLETED, "single", True),
        (State.CANCELED, "random", True),
        (State.ERROR, "asha", False),
        (State.PAUSED, "single", False),
    ],
)
def test_what_may_go_on_is_offered_and_nothing_else(
    visitor: Visitor, served: Served, state: State, searcher: str, offered: bool
) -> None:
    config = {**CONFIG, "searcher": {**CONFIG["searcher"], "name": searcher}}
    served.put([experiment(5, state=state, config=config)])
    assert ("experiments/5/continue" in visitor.get("experiments/5/trials").text) is offered


def test_a_search_of_which_nothing_is_left_says_so_before_one_tries(visitor: Visitor) -> None:
    shown = visitor.get("experiments/1/continue").text
    assert "it has completed, and nothing of it is left to do. Fork it instead" in shown and "No mistake" not in shown


def test_a_trial_without_a_checkpoint_does_not_offer_to_start_from_one(visitor: Visitor, served: Served) -> None:
    assert "trials/1/continue" in visitor.get("trials/1").text
    assert "starts from its latest checkpoint" in visitor.get("trials/1/continue").text
    served.put([trial(7, index=6)])
    assert "trials/7/continue" not in visitor.get("trials/7").text
    assert "it has none, so this cannot be created" in visitor.get("trials/7/continue").text


def test_progress_that_nobody_can_know_is_not_called_nothing(visitor: Visitor, served: Served) -> None:
    single = {"name": "single", "metric": "loss"}
    length = {"max_length": {"batches": 9}}
    for number, searcher, progress in (
        (5, single, 0.0),
        (6, {**single, **length}, 0.0),
        (7, {**CONFIG["searcher"], **length}, 0.0),
        (8, CONFIG["searcher"], 0.0),
        (9, CONFIG["searcher"], 1 / 3),
    ):
        served.put([experiment(number, state=State.PAUSED, progress=progress, config={**CONFIG, "searcher": searcher})])
    served.put(trained(trial(9, 5, index=0)))
    listed = visitor.get("experiments").text
    rows = {int(number): row for number, row in re.findall(r'<tr id="experiment-(\d+)"(.*?)</tr>', listed, re.DOTALL)}
    for number in (5, 8):
        assert "not known" in rows[number] and "report_progress" in rows[number] and "0%" not in rows[number]
    assert "0%" in rows[6] and "0%" in rows[7] and "33%" in rows[9] and "not known" not in rows[6] + rows[7] + rows[9]
    assert "not known" in visitor.get("experiments/8").text
    assert "4 steps so far" in visitor.get("experiments/5").text
    assert "not known" in visitor.get("trials/9").text


def test_many_files_are_found_by_a_part_of_their_path(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Path contains" not in visitor.get("experiments/2/code").text
    monkeypatch.setattr(code, "FEW", 3)
    shown = visitor.get("experiments/2/code?find=LOOK").text
    (link,) = re.findall(r'class="depth0"><a href="([^"]*)"', shown)
    assert "Path contains" in shown and link.endswith("code?find=LOOK&amp;path=look.ipynb")
    assert "No file of 4 has this in its path" in html.unescape(visitor.get("experiments/2/code?find=nothing").text)


def test_a_trial_that_its_search_stopped_is_stopped_on_every_page(visitor: Visitor, served: Served) -> None:
    searcher = {"name": "adaptive_asha", "metric": "loss", "max_trials": 4, "time_metric": "batches", "max_time": 40}
    served.put([experiment(5, config={**CONFIG, "searcher": searcher})])
    why = "rung 1 (batches 20): loss 0.3 did not reach the cut-off 0.2"
    served.put([trial(20, 5, index=0, reason=why, search={"bracket": 0, "lengths": [20.0, 40.0]})])
    for page in ("experiments/5/trials", "experiments/5/search", "trials/20"):
        shown = visitor.get(page).text
        assert re.findall(r'<span class="state (\w+)">.*?</span> (\w+)</span>', shown)[-1] == ("canceled", "stopped"), (
            page
        )


def test_brackets_have_the_numbers_that_the_command_line_gives_them(visitor: Visitor, served: Served) -> None:
    searcher = {"name": "adaptive_asha", "metric": "loss", "max_trials": 4, "bracket_rungs": [2, 1], "divisor": 2}
    searcher = {**searcher, "time_metric": "batches", "max_time": 40}
    served.put([experiment(5, config={**CONFIG, "searcher": searcher})])
    lengths = {0: [20.0, 40.0], 1: [40.0]}
    for index, bracket in enumerate((0, 1)):
        search = {"bracket": bracket, "lengths": lengths[bracket]}
        served.put(trained(trial(20 + index, 5, index=index, search=search)))
    shown = visitor.get("experiments/5/search").text
    assert re.findall(r"<h2>Bracket (\d+)", shown) == ["0", "1"]
    assert re.findall(r'aria-label="Rungs of bracket (\d+)', shown) == ["0", "1"]
    rows = re.findall(r'trials/(\d+)">\d+</a></td><td>.*?</td><td class="n">[^<]*</td><td class="n">(\d*)</td>', shown)
    assert rows == [("20", "0"), ("21", "1")]
    heads = [visitor.get(f"experiments/{number}/search").text.count(">Value</th>") for number in (1, 5)]
    assert heads == [0, 1], "a method that compares no trials has no value with which one was compared"
