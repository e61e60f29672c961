"""Forks and continued work, from an editor that says what is wrong and what it would cost."""

from __future__ import annotations

import html
import re

from dethpc.client.nouns.experiments import SearchCost
from dethpc.config import dump
from tests.master.conftest import CONFIG, Served
from tests.web.conftest import HOSTILE, Got, Visitor

GOOD = dump(
    {**CONFIG, "searcher": {"name": "random", "metric": "loss", "max_trials": 5, "max_length": {"batches": 10}}}
)


def written(got: Got) -> str:
    """What the editor holds."""
    found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", got.text, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def count(served: Served) -> int:
    return int(served.session.get("/api/v1/experiments")["pagination"]["total"])


def test_a_fork_begins_with_what_was_written_or_with_every_default(visitor: Visitor) -> None:
    assert written(visitor.get("experiments/1/fork")) == "name: digits\n"
    assert "max_trials: 3" in written(visitor.get("experiments/1/fork?all=1"))
    assert written(visitor.get("experiments/2/fork")) == HOSTILE


def test_mistakes_are_told_by_path_and_nothing_typed_is_lost(visitor: Visitor, served: Served) -> None:
    text = GOOD.replace("max_trials: 5", "max_trials: lots").replace("entrypoint", "entrypont") + f"# {HOSTILE}\n"
    for action, status in (("check", 200), ("create", 422)):
        got = visitor.post("experiments/1/fork", {"config": text, "action": action, "paused": "1"})
        assert got.status == status and written(got) == text and 'name="paused" value="1" checked' in got.text
        assert "searcher.max_trials" in got.text and "entrypont" in got.text
        line = text.splitlines().index("  max_trials: lots") + 1
        assert f'data-line="{line}"' in got.text and "Must be a whole number, not " in got.text
    assert count(served) == 2


def test_the_search_is_previewed_with_its_cost(visitor: Visitor) -> None:
    shown = re.sub(r"<[^>]+>", " ", visitor.post("experiments/1/fork", {"config": GOOD, "action": "check"}).text)
    assert re.search(r"Trials\s+5\s", shown) and re.search(r"Longest\s+10\s+batches", shown)
    assert re.search(r"In all\s+50\s+batches", shown)
    same = dump({**CONFIG, "searcher": {"name": "random", "metric": "loss", "max_trials": 6}})
    shown = visitor.post("experiments/1/fork", {"config": same, "action": "check"}).text
    assert "At the pace of experiment 1" in shown, "it trained three to their end, and six take twice as long"
    hours = re.search(r"Cost, about</dt><dd>([\d.]+)", shown)
    assert hours is not None and float(hours[1]) > 0


def test_a_fork_is_created_with_the_files_of_its_parent(visitor: Visitor, served: Served) -> None:
    got = visitor.post("experiments/1/fork", {"config": GOOD, "action": "create", "paused": "1"})
    assert got.status == 303
    number = int(re.findall(r"experiments/(\d+)", got.headers["location"])[0])
    found = served.session.get(f"/api/v1/experiments/{number}")["experiment"]
    assert found["forkedFrom"] == 1 and found["state"] == "STATE_PAUSED" and found["originalConfig"] == GOOD
    assert 'id="L1">x = 1' in visitor.get(f"experiments/{number}/code").text


def test_a_trial_is_continued_in_an_experiment_of_its_own(visitor: Visitor, served: Served) -> None:
    text = written(visitor.get("trials/2/continue"))
    assert "source_trial_id: 2" in text and "lr: 0.02" in text and "name: single" in text
    refused = visitor.post("trials/2/continue", {"config": text, "action": "create"})
    assert refused.status == 422 and "trial 2 has no checkpoint to start from" in refused.text, "these have none here"
    assert written(refused) == text and count(served) == 2


def test_an_experiment_is_continued_in_its_place(visitor: Visitor, served: Served) -> None:
    shown = visitor.get("experiments/2/continue")
    assert written(shown) == "" and "No mistake" in shown.text
    wrong = visitor.post("experiments/2/continue", {"config": "max_restarts: -1", "action": "check"})
    assert "not single searcher" in html.unescape(wrong.text)
    refused = visitor.post("experiments/2/continue", {"config": "", "action": "create"})
    assert refused.status == 422 and "has been completed" in refused.text
    single = dump({**CONFIG, "searcher": {"name": "single", "metric": "loss"}, "hyperparameters": {"lr": 1}})
    served.session.post("/api/v1/experiments", {"config": single, "activate": False})
    served.session.post("/api/v1/experiments/3/kill")
    assert served.session.get("/api/v1/experiments/3")["experiment"]["state"] == "STATE_CANCELED"
    got = visitor.post("experiments/3/continue", {"config": "max_restarts: 3", "action": "create"})
    assert got.status == 303, got.text
    found = served.session.get("/api/v1/experiments/3")
    assert found["config"]["max_restarts"] == 3
    assert found["experiment"]["state"] != "STATE_CANCELED"


def test_costs_are_compared_in_one_unit_only() -> None:
    def cost(*trials: tuple[int, int | None]) -> SearchCost:
        units = [{"name": "batches", "value": n, "maxLength": False} if n else {"maxLength": True} for _, n in trials]
        rows = [{"count": count, "unit": unit} for (count, _), unit in zip(trials, units, strict=True)]
        return SearchCost.of({"summary": {"trials": rows}})

    assert cost((3, 10), (1, 40)) == SearchCost(4, 70, 40, "batches")
    assert cost((4, 10)).summary == "4 trials, 40 batches in total"
    assert cost((3, 10), (1, 40)).summary == "4 trials, 70 batches in total, as much as 1.75 trials of 40 batches"
    assert cost((1, None)).summary == "1 trial" and cost((2, None)).total is None
    assert cost((4, 10)).slot_seconds(cost((2, 40)), 80.0) == 40.0
    assert cost((4, None)).slot_seconds(cost((2, None)), 80.0) == 160.0
    assert cost((4, None)).slot_seconds(cost((2, 40)), 80.0) is None
