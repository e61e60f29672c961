"""How a search stands, over HTTP, while it goes on and after; and search methods that run elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any
from unittest import mock

import pytest
import yaml
from sqlalchemy import Connection

from dethpc.client.nouns import experiments
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Run
from dethpc.domain.ports import Snapshot
from dethpc.domain.reports import Report
from dethpc.domain.states import TaskKind
from dethpc.engine import events
from dethpc.errors import NotFound, Refused
from dethpc.master.experiments import searches
from dethpc.master.experiments.create import NewExperiment
from dethpc.master.http.nouns.searches import MOST, estimated_end
from dethpc.state import queries
from tests.master.conftest import Served, experiment, run_of, trial
from tests.waiting import LONG_ENOUGH, wait_until

ASHA = {
    "name": "adaptive_asha",
    "max_trials": 4,
    "max_concurrent_trials": 4,
    "bracket_rungs": [2],
    "divisor": 4,
    "time_metric": "batches",
    "max_time": 16,
}


def create(served: Served, **searcher: Any) -> int:
    config = {
        "entrypoint": "python3 train.py",
        "searcher": {"metric": "loss", **searcher},
        "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    }
    return served.daemon.services.creator.create("ada", NewExperiment(yaml.safe_dump(config), b"", True))[0].id


def trial_of(run: Run) -> int:
    return int(run.task_id.partition(".")[2])


def live(served: Served, experiment_id: int) -> list[Run]:
    runs = [run for run in served.daemon.ledger.state.runs.values() if run.experiment_id == experiment_id]
    return sorted(runs, key=trial_of)


def train(served: Served, run: Run, steps: int, loss: float, k: int = 0) -> None:
    """The run starts, if it has not, and validates."""
    do = served.daemon.ledger.do
    do(events.Submitted(run.id, "1", time.time()))
    do(events.AttemptStarted(run.id, k, ["n0"], None, 0, time.time() - 10))
    applied = served.daemon.ledger.state.attempt(run.id, k).applied_seq  # type: ignore[union-attr]
    data = {"group": "validation", "steps_completed": steps, "metrics": {"loss": loss, "batches": steps}}
    do(events.Reported(run.id, k, [Report(applied + 1, time.time(), "metrics", data)], time.time()))


def end(served: Served, run: Run) -> None:
    report = EndReport(finished=True, exit_code=0, phase="train", acked=True)
    served.daemon.ledger.do(events.AttemptEnded(run.id, 0, report, None, time.time()))


def test_what_is_paused_has_no_time_to_go(served: Served) -> None:
    id = create(served, **ASHA)
    url = f"/api/v1/experiments/{id}/search"
    runs = live(served, id)
    train(served, runs[0], 4, 0.5)
    train(served, runs[1], 4, 0.75)
    end(served, runs[1])
    assert served.session.get(url)["estimatedEndTime"] > "2026"
    served.session.post(f"/api/v1/experiments/{id}/pause")
    assert served.session.get(url)["estimatedEndTime"] is None
    served.session.post(f"/api/v1/experiments/{id}/activate")
    assert served.session.get(url)["estimatedEndTime"] > "2026"


def test_a_search_shows_its_rungs_and_why_a_trial_was_stopped(served: Served) -> None:
    id = create(served, **ASHA)
    url = f"/api/v1/experiments/{id}/search"
    found = served.session.get(url)
    assert (found["method"], found["unit"], found["progress"], found["trialsTotal"]) == (
        "adaptive_asha",
        "batches",
        0,
        4,
    )
    assert [rung["length"] for rung in found["brackets"][0]["rungs"]] == [4, 16]
    assert {place["nextLength"] for place in found["trials"]} == {4} and found["estimatedEndTime"] is None
    runs = live(served, id)
    assert {place["state"] for place in found["trials"]} == {"STATE_QUEUED"}, "as in every list of trials"
    train(served, runs[0], 4, 0.5)
    assert "STATE_RUNNING" in {place["state"] for place in served.session.get(url)["trials"]}
    train(served, runs[1], 4, 0.75)
    train(served, runs[2], 4, 0.25)
    end(served, runs[1])
    found = served.session.get(url)
    lower, upper = found["brackets"][0]["rungs"]
    assert [(t["trialId"], t["value"], t["wentOn"]) for t in lower["trials"]] == [
        (trial_of(runs[2]), 0.25, False),
        (trial_of(runs[0]), 0.5, False),
        (trial_of(runs[1]), 0.75, False),
    ]
    assert (lower["entered"], lower["cutOff"], upper["entered"]) == (3, 0.25, 0)
    best, stopped = found["trials"][2], found["trials"][1]
    assert (best["rung"], best["length"], best["value"], best["nextLength"]) == (0, 4, 0.25, 16)
    assert stopped["state"] == "STATE_COMPLETED" and stopped["nextLength"] is None
    assert "loss 0.75 is worse than the cut-off 0.5" in stopped["reason"]
    assert found["progress"] == (1 + 2 * 4 / 16) / 4 and found["estimatedEndTime"] > "2026"
    few = served.session.get(url, params={"limit": 1})
    assert [t["trialId"] for t in few["brackets"][0]["rungs"][0]["trials"]] == [trial_of(runs[2])]
    assert few["trials"] == found["trials"][:1] and few["pagination"]["total"] == 4
    assert served.session.get(url, params={"limit": 1, "offset": 2})["trials"] == found["trials"][2:3]
    train(served, runs[2], 16, 0.125)
    for run in (*runs[:1], *runs[2:]):
        end(served, run)
    found = served.session.get(url)
    assert found["progress"] == 1 and found["estimatedEndTime"] is None
    assert found["brackets"][0]["rungs"][0]["trials"][0]["wentOn"] and found["brackets"][0]["rungs"][0]["wentOn"] == 1
    assert found["trials"][2]["rung"] == 1
    for _ in range(2):  # what has ended is told again as it was
        few = served.session.get(url, params={"limit": 1, "offset": 2})
        assert few["brackets"][0]["rungs"][0] == {**found["brackets"][0]["rungs"][0], "trials": mock.ANY}
        assert few["brackets"][0]["rungs"][0]["trials"] == found["brackets"][0]["rungs"][0]["trials"][:1]
        assert few["trials"] == found["trials"][2:3]


def test_a_population_shows_who_came_from_whom(served: Served) -> None:
    id = create(
        served,
        name="pbt",
        population_size=2,
        num_rounds=2,
        length_per_round={"batches": 3},
        replace_function={"truncate_fraction": 0.5},
        explore_function={"resample_probability": 0.0, "perturb_factor": 0.2},
    )
    for run, loss in zip(live(served, id), (0.25, 0.5), strict=True):
        train(served, run, 3, loss)
        end(served, run)
    found = served.session.get(f"/api/v1/experiments/{id}/search")
    first, second, copy = found["trials"]
    assert copy["parentTrialId"] == first["trialId"] and first["parentTrialId"] is None
    assert (first["nextLength"], second["nextLength"], copy["nextLength"]) == (6, None, 3)
    assert "loss 0.5 is among the worst 1 of 2" in second["reason"]
    rounds = [[(t["value"], t["wentOn"]) for t in rung["trials"]] for rung in found["brackets"][0]["rungs"]]
    assert rounds == [[(0.25, True), (0.5, False)], []]


def test_a_search_that_an_earlier_master_ended_or_that_was_no_search_is_shown(served: Served) -> None:
    served.put([experiment(7, progress=1.0), trial(1, 7), trial(2, 7), run_of(trial(1, 7))])
    found = served.session.get("/api/v1/experiments/7/search")
    assert (found["method"], found["trialsEnded"], found["trialsTotal"], found["brackets"]) == ("random", 2, 3, [])
    config = {"entrypoint": "x", "searcher": {"name": "custom", "metric": "loss"}, "hyperparameters": {}}
    served.put(
        [
            experiment(8, kind=TaskKind.IMPORTED_TRIAL, config=config),
            trial(9, 8, index=0),
        ]
    )
    assert len(served.session.get("/api/v1/experiments/8/search")["trials"]) == 1
    with pytest.raises(NotFound):
        served.session.get("/api/v1/experiments/9/search")


def test_who_asks_for_no_number_gets_no_hundred_thousand_trials(served: Served) -> None:
    served.put([experiment(7), *(trial(1 + n, 7, index=n) for n in range(MOST + 1))])
    url = "/api/v1/experiments/7/search"
    assert len(served.session.get(url)["trials"]) == MOST
    assert len(experiments.search(served.session, 7)["trials"]) == MOST + 1, "0 is all"
    (last,) = experiments.search(served.session, 7, offset=MOST, limit=5)["trials"]
    assert last["trialId"] == MOST + 1


def forget(served: Served) -> None:
    """As a new master knows nothing of what was told."""
    served.daemon.services.searches._ended.clear()  # noqa: SLF001


def computed(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ids of the searches that are folded from now on."""
    found: list[int] = []
    rows_of = queries.search

    def counted(connection: Connection, experiment_id: int) -> Snapshot:
        found.append(experiment_id)
        return rows_of(connection, experiment_id)

    monkeypatch.setattr(queries, "search", counted)
    return found


def test_what_has_ended_is_computed_once_and_while_it_goes_on_never_kept(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded = computed(served, monkeypatch)
    id = create(served, **ASHA)
    for n, run in enumerate(live(served, id)):
        train(served, run, 4, 0.5 + n / 8)
        experiments.search(served.session, id)
        end(served, run)
    for run in live(served, id):
        train(served, run, 16, 0.25, 1)
        end(served, run)
    assert id not in served.daemon.ledger.state.experiments
    asked = [{"limit": 0}, {"limit": 1}, {"limit": 2, "offset": 1}, {}]
    url = f"/api/v1/experiments/{id}/search"
    first = [served.session.get(url, params=params) for params in asked]
    assert folded == [id]
    assert [served.session.get(url, params=params) for params in asked] == first and folded == [id]
    forget(served)
    assert [served.session.get(url, params=params) for params in asked] == first and folded == [id, id]


def test_of_a_large_search_the_best_of_each_rung_are_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = computed(served, monkeypatch)
    monkeypatch.setattr(searches, "_MOST", 2)
    id = create(served, **ASHA)
    for n, run in enumerate(live(served, id)):
        train(served, run, 4, 0.5 + n / 8)
        end(served, run)
    url = f"/api/v1/experiments/{id}/search"
    (whole,) = [served.session.get(url)["brackets"][0]["rungs"][0]["trials"]]
    assert len(whole) == 4 and folded == [id]
    for limit in (1, 2):
        (rung, *_) = served.session.get(url, params={"limit": limit})["brackets"][0]["rungs"]
        assert rung["trials"] == whole[:limit] and folded == [id]
    (rung, *_) = served.session.get(url, params={"limit": 3})["brackets"][0]["rungs"]
    assert rung["trials"] == whole[:3] and folded == [id, id], "what is not kept is computed again"


def test_the_searches_that_were_looked_at_last_are_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = computed(served, monkeypatch)
    monkeypatch.setattr(searches, "_CACHE_SIZE", 2)
    ids = [create(served, name="single") for _ in range(3)]
    for id in ids:
        (run,) = live(served, id)
        train(served, run, 4, 0.5)
        end(served, run)
    for id in [*ids[:2], ids[0], ids[2], ids[0], ids[1]]:
        experiments.search(served.session, id)
    assert folded == [*ids, ids[1]]


def test_a_search_that_goes_on_is_told_as_it_stands(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = computed(served, monkeypatch)
    id = create(served, name="random", max_trials=2)
    served.session.post(f"/api/v1/experiments/{id}/kill")
    for run in live(served, id):
        served.daemon.ledger.do(events.AttemptEnded(run.id, -1, None, None, time.time()))
    assert experiments.search(served.session, id)["trialsEnded"] == 2
    served.session.post("/api/v1/experiments/continue", json={"id": id})
    assert experiments.search(served.session, id)["trialsEnded"] == 0
    assert folded == [id]
    for run in live(served, id):
        train(served, run, 4, 0.5)
        end(served, run)
    for _ in range(2):
        answer = experiments.search(served.session, id)
        assert (answer["trialsEnded"], answer["progress"]) == (2, 1.0)
    assert folded == [id, id]


def test_a_file_about_a_search_of_an_earlier_release_goes_with_it(served: Served) -> None:
    id = create(served, name="single")
    (run,) = live(served, id)
    train(served, run, 4, 0.5)
    end(served, run)
    file = served.daemon.installation.home.search(id)
    file.write_text("{}")
    served.delete(id)
    assert not file.exists() and file.parent.exists()


def test_a_search_that_is_being_deleted_is_told_as_it_ended(served: Served) -> None:
    id = create(served, **ASHA)
    for n, run in enumerate(live(served, id)):
        train(served, run, 4, 0.5 + n / 8)
        end(served, run)
    before = experiments.search(served.session, id)
    assert before["brackets"][0]["rungs"][0]["cutOff"] == 0.5
    served.session.delete(f"/api/v1/experiments/{id}")
    forget(served)
    assert experiments.search(served.session, id) == before


def test_a_deleted_search_is_not_found(served: Served) -> None:
    id = create(served, name="single")
    (run,) = live(served, id)
    train(served, run, 4, 0.5)
    end(served, run)
    served.delete(id)
    with pytest.raises(NotFound, match=f"experiment {id} not found: it was deleted"):
        served.session.get(f"/api/v1/experiments/{id}/search")


@pytest.mark.parametrize(
    ("progress", "times", "end"),
    [
        (0.5, [(0, None)], 200),
        (0.5, [(0, 50), (20, 60), (80, None)], 180),  # nothing trained between 60 and 80
        (0.25, [(0, 90), (90, None)], 400),
        (0.5, [(0, 50)], None),
        (0.0, [(0, None)], None),
        (1.0, [(0, None)], None),
        (0.5, [], None),
    ],
)
def test_the_end_is_estimated_from_the_time_in_which_anything_trained(
    progress: float, times: list[tuple[float, float | None]], end: float | None
) -> None:
    assert estimated_end(progress, times, now=100) == end


# --- a search method that runs elsewhere


def test_events_go_out_once_each_and_an_answer_that_is_repeated_changes_nothing(served: Served) -> None:
    id = create(served, name="custom", unit="batches")

    def waiting(timeout: float = 0) -> list[dict[str, Any]]:
        url = f"/api/v1/experiments/{id}/searcher/events"
        found: list[dict[str, Any]] = served.session.get(url, params={"timeoutSeconds": timeout})["searcherEvents"]
        return found

    def answer(event: int, *operations: dict[str, Any]) -> None:
        body = {"searcherOperations": list(operations), "triggeredByEvent": {"id": event}}
        served.session.post(f"/api/v1/experiments/{id}/searcher/operations", json=body)

    assert waiting() == [{"id": 1, "initialOperations": {"placeholder": 1}}]
    first = [
        {"createTrial": {"requestId": "a", "hyperparams": {"lr": 0.5}}},
        {"trialOperation": {"validateAfter": {"requestId": "a", "length": 3}}},
    ]
    for _ in range(2):
        answer(1, *first)
    assert waiting() == [{"id": 2, "trialCreated": {"requestId": "a"}}]
    answer(2)
    got: list[Any] = []
    asking = threading.Thread(target=lambda: got.extend(waiting(30)))
    asking.start()
    (run,) = live(served, id)
    train(served, run, 3, 0.25)
    asking.join(LONG_ENOUGH)
    completed = {"requestId": "a", "metric": 0.25, "validateAfterLength": "3"}
    assert got == waiting() == [{"id": 3, "validationCompleted": completed}]
    named_otherwise = served.session.get(f"/api/v1/experiments/{id}/searcher_events")
    assert named_otherwise["searcherEvents"] == got
    end(served, run)
    answer(3, {"closeTrial": {"requestId": "a"}})
    (closed,) = wait_until(waiting)
    answer(closed["id"], {"shutDown": {}})
    (last,) = waiting()
    assert last["experimentInactive"] == {"experimentState": "STATE_COMPLETED"}
    with pytest.raises(Refused, match="its search is over"):
        answer(closed["id"], {"shutDown": {}})


def test_only_a_custom_search_listens(served: Served) -> None:
    id = create(served, name="random", max_trials=1)
    with pytest.raises(Refused, match="not custom"):
        served.session.get(f"/api/v1/experiments/{id}/searcher/events")
    custom = create(served, name="custom")
    with pytest.raises(Refused, match="triggeredByEvent"):
        served.session.post(
            f"/api/v1/experiments/{custom}/searcher/operations",
            json={"searcherOperations": [], "triggeredByEvent": {}},
        )


def test_a_sampler_that_would_fail_after_its_first_trials_is_refused_at_creation(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setitem(sys.modules, "cmaes", None)
    search = {"name": "random", "max_trials": 6, "max_concurrent_trials": 2}
    with pytest.raises(Refused, match="sampler.n_startup_trials: 'ten' is a str"):
        create(served, **search, sampler={"name": "tpe", "n_startup_trials": "ten"})
    with pytest.raises(Refused, match="needs the package cmaes"):
        create(served, **search, sampler="cmaes")
    assert create(served, **search, sampler="tpe") == 1
