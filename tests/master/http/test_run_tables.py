"""Tables of runs and experiments as clients ask for them, and actions on many runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dethpc.client.nouns import experiments, workspaces
from dethpc.domain.states import State
from dethpc.errors import NotFound, Refused
from dethpc.master.rebuild import recreate
from dethpc.state import open_store
from dethpc.state.queries import listings
from tests.domain.test_filters import deep, field, group, text_of
from tests.master.conftest import CONFIG, Published, Served, experiment, run_of, trained, trial
from tests.master.http.test_control import YAML

ONE = {**CONFIG, "searcher": {"name": "single", "metric": "loss", "smaller_is_better": True}}


@pytest.fixture
def runs(served: Served) -> Served:
    """A search of two trials, an experiment of one, and one that is archived."""
    served.put(
        [
            experiment(1, owner=served.owner, labels=["a"]),
            *trained(trial(1, 1)),
            *trained(trial(2, 1, metadata={"data": {"set": "b"}})),
            experiment(2, config=ONE, owner=served.owner, state=State.COMPLETED),
            *trained(trial(3, 2, index=0, hparams={"lr": 0.5})),
            experiment(3, config=ONE, owner=served.owner, archived=True),
            *trained(trial(4, 3, index=0)),
        ]
    )
    return served


def search(served: Served, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = served.session.post("/api/v1/runs", json=body)
    return answer


def ids(answer: dict[str, Any]) -> list[int]:
    return [run["id"] for run in answer["runs"]]


def test_a_run_that_waits_or_trains_is_active(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1, state=State.ACTIVE))])
    assert [run["state"] for run in search(served)["runs"]] == ["STATE_ACTIVE"]


def test_a_run_shows_its_trial_and_its_experiment(runs: Served) -> None:
    (run,) = search(runs, filter=text_of(field("id", "=", 2, location="LOCATION_TYPE_RUN")))["runs"]
    assert (run["state"], run["localId"], run["archived"], run["projectName"]) == (
        "STATE_COMPLETED",
        "UNCATEGORIZED-2",
        False,
        "Uncategorized",
    )
    assert run["hyperparameters"] == {"lr": 0.02} and run["metadata"] == {"data": {"set": "b"}}
    assert run["labels"] == ["a"] and run["searcherMetricValue"] == 0.5 and run["checkpointCount"] == 2
    assert run["summaryMetrics"]["validation_metrics"]["loss"]["min"] == 0.5
    assert run["experiment"] | {"id": 1, "isMultitrial": True, "searcherType": "random"} == run["experiment"]


def test_pages_of_runs(runs: Served) -> None:
    assert ids(search(runs)) == [1, 2, 3, 4]
    answer = search(runs, sort="hp.lr=desc,id=desc", limit=2, offset=1, projectId=1)
    assert ids(answer) == [4, 2]
    assert answer["pagination"] | {"total": 4, "startIndex": 1, "endIndex": 3} == answer["pagination"]
    assert ids(search(runs, filter=text_of())) == [1, 2, 3], "what is archived is left out by a filter"
    metadata = field("metadata.data.set", "=", "b", location="LOCATION_TYPE_RUN_METADATA", type="COLUMN_TYPE_TEXT")
    assert ids(search(runs, filter=text_of(metadata))) == [2]
    assert search(runs, limit=-2)["runs"] == [] and search(runs, limit=-2)["pagination"]["total"] == 4
    with pytest.raises(NotFound, match="project 9 not found"):
        search(runs, projectId=9)


def test_experiments_are_filtered_by_the_same_grammar(runs: Served) -> None:
    body = {"filter": text_of(field("numTrials", ">=", 1), showArchived=True), "sort": "searcherMetricsVal=asc"}
    answer = runs.session.post("/api/v1/experiments-search", json=body)
    pairs = [(item["experiment"]["id"], item["bestTrial"]["id"]) for item in answer["experiments"]]
    assert pairs == [(3, 4), (2, 3), (1, 2)] and answer["pagination"]["total"] == 3


@pytest.mark.parametrize(
    "body",
    [
        {"filter": deep(10_000)},
        {"filter": "[" * 100_000},
        {"filter": text_of(field("id", "=", "x", location="LOCATION_TYPE_RUN"))},
        {"filter": text_of(field("id", location="LOCATION_TYPE_VALIDATIONS"))},
        {"filter": 3},
        {"sort": "x"},
        {"sort": "nothing=asc"},
        {"sort": ["id=asc"]},
        {"limit": 10**30},
        {"offset": -(10**30)},
        {"offset": "much"},
        {"limit": -7},
        {"projectId": 10**30},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_what_cannot_be_is_refused_in_words(runs: Served, body: dict[str, Any]) -> None:
    for path in ("/api/v1/runs", "/api/v1/experiments-search"):
        with pytest.raises(Refused, match=r"\w+ \w+ \w+"):
            runs.session.post(path, json=body)


@pytest.mark.parametrize("value", ["\0", "\ud800", 10**400, -1e308, "%", "'; DROP TABLE trials; --"])
def test_strange_values_find_nothing_and_break_nothing(runs: Served, value: Any) -> None:
    for column, location in (
        ("experimentName", "RUN"),
        ("validation.loss.last", "VALIDATIONS"),
        ("hp.lr", "RUN_HYPERPARAMETERS"),
    ):
        condition = field(column, "=", value, location=f"LOCATION_TYPE_{location}")
        assert search(runs, filter=text_of(condition))["runs"] == []


def act(served: Served, action: str, *run_ids: int, **more: Any) -> dict[int, str]:
    answer = served.session.post(f"/api/v1/runs/{action}", json={"runIds": run_ids, "projectId": 1, **more})
    return {result["id"]: result["error"] for result in answer["results"]}


def test_runs_are_archived_by_themselves(runs: Served) -> None:
    assert act(runs, "archive", 1, 1, 3, 99) == {1: "", 3: "", 99: "run 99 not found in project 1"}
    assert ids(search(runs, filter=text_of())) == [2]
    assert [run["archived"] for run in search(runs)["runs"]] == [True, False, True, True]
    assert act(runs, "archive", 1, 4) == {1: "", 4: ""}, "they are archived already"
    assert "experiment 3, which is archived" in act(runs, "unarchive", 1, 4)[4]
    assert ids(search(runs, filter=text_of())) == [1, 2]
    lr = field("hp.lr", ">", 0.4, location="LOCATION_TYPE_RUN_HYPERPARAMETERS", type="COLUMN_TYPE_NUMBER")
    assert act(runs, "unarchive", filter=text_of(lr, showArchived=True)) == {3: ""}
    assert ids(search(runs, filter=text_of())) == [1, 2, 3]
    with pytest.raises(Refused, match="either runIds or filter"):
        act(runs, "archive", 1, filter=text_of())


def test_a_run_that_trains_is_not_archived_and_not_deleted(served: Served) -> None:
    busy = trial(1, state=State.ACTIVE, ended_at=None)
    served.put([experiment(1, state=State.ACTIVE, ended_at=None), busy, run_of(busy)])
    for action in ("archive", "delete"):
        assert "has not ended" in act(served, action, 1)[1]


def test_runs_are_killed_and_pause_with_their_experiment(served: Served) -> None:
    single = experiments.create(served.session, YAML, [], activate=False)["experiment"]["id"]
    grid = YAML.replace("{name: single,", "{name: random, max_trials: 2,")
    many = experiments.create(served.session, grid, [], activate=True)["experiment"]["id"]
    (alone,), others = ([row["id"] for row in experiments.trials(served.session, id)] for id in (single, many))
    assert act(served, "resume", alone) == {alone: ""}
    assert experiments.get(served.session, single)["experiment"]["state"] == "STATE_QUEUED"
    results = act(served, "pause", alone, *others)
    together = {id: f"Cannot pause/unpause run '{id}' (part of multi-trial)." for id in others}
    assert results == {alone: "", **together} and act(served, "resume", *others) == together
    assert experiments.get(served.session, single)["experiment"]["state"] == "STATE_PAUSED"
    assert act(served, "kill", *others, 10**40) == {
        **dict.fromkeys(others, ""),
        10**40: f"run {10**40} not found in project 1",
    }
    ending = {"STATE_STOPPING_KILLED", "STATE_CANCELED"}
    assert {row["state"] for row in experiments.trials(served.session, many)} <= ending
    assert act(served, "kill", others[0]) == {others[0]: ""}, "it has ended already"


def test_runs_are_deleted_and_move_with_their_experiments(runs: Served) -> None:
    space = workspaces.create_workspace(runs.session, "Vision")
    there = workspaces.create_project(runs.session, space["id"], "Digits", "")["id"]
    body = {"runIds": [1, 2, 3, 4, 9], "sourceProjectId": 1, "destinationProjectId": there, "skipMultitrial": True}
    results = {item["id"]: item["error"] for item in runs.session.post("/api/v1/runs/move", json=body)["results"]}
    assert results[3] == "" and "skipped" in results[1] and "archived" in results[4] and "not found" in results[9]
    body = {**body, "runIds": [1], "skipMultitrial": False}
    assert runs.session.post("/api/v1/runs/move", json=body)["results"] == [{"id": 1, "error": ""}]
    assert ids(search(runs, projectId=there)) == [1, 2, 3]
    results = act(runs, "delete", 2, 4, projectId=0)
    assert "one of several" in results[2] and results[4] == ""
    assert ids(search(runs)) == [1, 2, 3, 4], "until its files are removed"
    with pytest.raises(NotFound, match="project 77"):
        runs.session.post("/api/v1/runs/move", json={**body, "destinationProjectId": 77})


def test_the_published_client_reads_them(published: Published, runs: Served) -> None:
    condition = text_of(group(field("state", "=", "COMPLETED", location="LOCATION_TYPE_RUN")))
    got = published.python(
        f"body = bindings.v1SearchRunsRequest(filter={condition!r}, sort='searcherMetricsVal=desc')\n"
        "runs = bindings.post_SearchRuns(sess, body=body).runs\n"
        "request = bindings.v1ArchiveRunsRequest(projectId=1, runIds=[1, 50])\n"
        "results = bindings.post_ArchiveRuns(sess, body=request).results\n"
        "table = bindings.post_SearchExperiments(sess, body=bindings.v1SearchExperimentsRequest(sort='id=desc'))\n"
        "print(json.dumps([[r.id for r in runs], runs[0].experiment.name, runs[0].state.value,\n"
        "  [r.error for r in results], [e.experiment.id for e in table.experiments]]))"
    )
    assert got == [[1, 2, 3], "digits 1", "STATE_COMPLETED", ["", "run 50 not found in project 1"], [3, 2, 1]]


def test_what_was_archived_outlives_its_database(runs: Served) -> None:
    act(runs, "archive", 1)
    home = runs.daemon.installation.home
    with open_store(str(home.root / "again.db")) as store:
        store.commit([experiment(1), trial(1)])
        recreate(home, store)
        with store.read() as connection:
            assert [row.archived for row in listings.run_rows(connection, [1])] == [True]
