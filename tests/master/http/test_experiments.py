"""Experiments over HTTP: lists, changes, and what belongs to one."""

from __future__ import annotations

import base64
import io
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from dethpc.client import Session
from dethpc.client.nouns import checkpoints, experiments, jobs, models, users, workspaces
from dethpc.domain.context_files import WORTH_ASKING
from dethpc.domain.facts import Checkpoint, Metric, Row
from dethpc.domain.states import CheckpointState, RunState, State
from dethpc.engine import events
from dethpc.errors import ConfigError, DethpcError, NotFound, Refused
from dethpc.master.durable import contexts
from dethpc.state import queries
from tests.master.conftest import CONFIG, T0, Served, experiment, run_of, trained, trial, uuid_of

YAML = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"


def file(path: str, text: str = "", type: str = "0") -> dict[str, Any]:
    content = base64.b64encode(text.encode()).decode()
    return {
        "path": path,
        "content": content,
        "type": ord(type),
        "mtime": "1700000000",
        "mode": 0o644,
        "uid": 0,
        "gid": 0,
    }


def ids(served: Served, **params: Any) -> list[int]:
    return [item["id"] for item in served.session.get("/api/v1/experiments", params=params)["experiments"]]


def test_filters_of_the_list(served: Served) -> None:
    active = experiment(4, state=State.ACTIVE, ended_at=None)
    served.put(
        [
            experiment(1, labels=["Blue", "a"], description="First try"),
            experiment(2, archived=True, labels=["blue"]),
            experiment(3, user_id=2, state=State.ERROR, name="100% done"),
            active,
            trial(1, 4, state=State.ACTIVE),
            run_of(trial(1, 4), state=RunState.RUNNING),
            experiment(5, state=State.ACTIVE, ended_at=None, project_id=2),
            experiment(6, state=State.DELETED),
        ]
    )
    assert ids(served) == [1, 2, 3, 4, 5]
    assert ids(served, archived=True) == [2] and ids(served, archived=False) == [1, 3, 4, 5]
    assert ids(served, labels="Blue") == [1] and ids(served, labels=["Blue", "a"]) == [1]
    assert ids(served, labels="lu") == []
    assert ids(served, name="DIGITS") == [1, 2, 4, 5] and ids(served, name="0%") == [3] and ids(served, name="_") == []
    assert ids(served, description="first") == [1]
    users.create(served.session, "bob", "")
    assert ids(served, users="bob") == ids(served, userIds=2) == [3]
    assert ids(served, states=["STATE_ERROR", "STATE_RUNNING"]) == [3, 4]
    assert ids(served, states="STATE_QUEUED") == [5] and ids(served, states="STATE_ACTIVE") == [4, 5]
    assert ids(served, **{"experimentIdFilter.incl": [1, 3]}) == [1, 3]
    assert ids(served, **{"experimentIdFilter.gt": 2, "experimentIdFilter.lte": 4}) == [3, 4]
    assert ids(served, projectId=2) == [5]
    states = {e["id"]: e["state"] for e in served.session.get("/api/v1/experiments")["experiments"]}
    assert (states[4], states[5]) == ("STATE_RUNNING", "STATE_QUEUED")


def test_order_and_pages_of_the_list(served: Served) -> None:
    served.put([experiment(id, progress=id % 3 / 2, ended_at=None if id == 2 else 1e9 + id) for id in range(1, 6)])
    served.put(
        [
            *(trial(1, 1), trial(2, 1), trial(3, 4, index=0, best_validation=0.01)),
            *trained(trial(4, 5, index=0, best_validation=9.0)),
        ]
    )
    assert ids(served, orderBy="ORDER_BY_DESC") == [5, 4, 3, 2, 1]
    assert ids(served, sortBy="SORT_BY_PROGRESS") == [3, 1, 4, 2, 5]
    assert ids(served, sortBy="SORT_BY_END_TIME", orderBy="ORDER_BY_DESC") == [5, 4, 3, 1, 2]
    assert ids(served, sortBy="SORT_BY_NUM_TRIALS", orderBy="ORDER_BY_DESC")[0] == 1
    assert ids(served, sortBy="SORT_BY_SEARCHER_METRIC_VAL") == [4, 1, 5, 2, 3]
    assert ids(served, sortBy="SORT_BY_CHECKPOINT_SIZE", orderBy="ORDER_BY_DESC")[0] == 5
    for key in "DESCRIPTION START_TIME STATE USER NAME FORKED_FROM RESOURCE_POOL PROJECT_ID CHECKPOINT_COUNT".split():
        assert sorted(ids(served, sortBy=f"SORT_BY_{key}")) == [1, 2, 3, 4, 5]
    page = served.session.get("/api/v1/experiments", params={"limit": 2, "offset": 1})
    assert [e["id"] for e in page["experiments"]] == [2, 3]
    assert page["pagination"] == {"offset": 1, "limit": 2, "startIndex": 1, "endIndex": 3, "total": 5}
    assert ids(served, offset=-2) == [4, 5] and ids(served, limit=-1) == [1, 2, 3, 4, 5]
    none = served.session.get("/api/v1/experiments", params={"limit": -2})
    assert none["experiments"] == [] and none["pagination"]["total"] == 5


def test_create_packs_the_context_the_same_each_time(served: Served) -> None:
    body = {"config": YAML, "modelDefinition": [file("a.py", "x = 1"), file("sub", type="5")], "activate": False}
    first, second = (served.session.post("/api/v1/experiments", json=body)["experiment"] for _ in "ab")
    assert first["id"] != second["id"] and first["state"] == "STATE_PAUSED" and first["originalConfig"] == YAML
    archives = [served.session.get(f"/api/v1/experiments/{e['id']}/model_def")["b64Tgz"] for e in (first, second)]
    assert archives[0] == archives[1]
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archives[0]))) as tar:
        assert tar.getnames() == ["a.py", "sub"] and tar.getmember("sub").isdir()
    tree = served.session.get(f"/api/v1/experiments/{first['id']}/file_tree")["files"]
    assert [(node["path"], node["isDir"], node["contentLength"]) for node in tree] == [
        ("a.py", False, 5),
        ("sub", True, 0),
    ]
    got = served.session.post(f"/api/v1/experiments/{first['id']}/file", json={"path": "a.py"})
    assert base64.b64decode(got["file"]) == b"x = 1"


def test_a_context_that_the_master_has_is_not_sent_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, list[str]]] = []
    request = Session.request

    def noting(session: Session, method: str, path: str, **options: Any) -> Any:
        asked.append((method, path.rpartition("/")[0], sorted(options.get("json") or ())))
        return request(session, method, path, **options)

    monkeypatch.setattr(Session, "request", noting)
    same = [{**file("a.py", "x" * WORTH_ASKING), "mtime": 1_700_000_000}, {**file("b"), "mtime": 1}]
    other = [{**same[0], "mtime": 1_700_000_001}, same[1]]
    made = [
        experiments.create(served.session, YAML, files)["experiment"]["id"] for files in (same, same, other, same[1:])
    ]
    contexts = [served.session.get(f"/api/v1/experiments/{id}/model_def")["b64Tgz"] for id in made]
    assert contexts[0] == contexts[1] != contexts[2] != contexts[3]
    whole, hashed = (
        sorted(["activate", "config", "environment", name, "validateOnly"])
        for name in ("modelDefinition", "contextDigest")
    )
    question = ("GET", "/api/v1/contexts", [])
    creations = [words for method, _, words in asked if method == "POST"]
    assert creations == [whole, hashed, whole, whole] and asked.count(question) == 3, "the small one is just sent"

    digest = next(served.daemon.installation.home.root.glob("contexts/by-files/*"))
    digest.resolve().write_bytes(b"damaged")
    for odd in (digest.name, "0" * 64, "..", "x"):
        with pytest.raises(NotFound):
            served.session.get(f"/api/v1/contexts/{odd}")
        with pytest.raises(NotFound):
            served.session.post("/api/v1/experiments", json={"config": YAML, "contextDigest": odd})


@pytest.mark.parametrize(
    "path, type", [("/etc/passwd", "0"), ("../x", "0"), ("a/../../x", "0"), ("fifo", "6"), ("", "0")]
)
def test_a_context_stays_inside(served: Served, path: str, type: str) -> None:
    body = {"config": YAML, "modelDefinition": [file(path, "x", type)]}
    with pytest.raises(Refused):
        served.session.post("/api/v1/experiments", json=body)


def test_validate_only_creates_nothing(served: Served) -> None:
    answer = served.session.post("/api/v1/experiments", json={"config": YAML, "validateOnly": True})
    assert answer["config"]["searcher"]["metric"] == "loss" and answer["experiment"]["id"] == 0
    assert ids(served) == []
    with pytest.raises(ConfigError):
        served.session.post("/api/v1/experiments", json={"config": "searcher: 3", "validateOnly": True})


def test_the_configuration_says_what_was_set_since_the_creation(served: Served) -> None:
    """A fork is made of it."""
    created = experiments.create(served.session, YAML, [])
    id = int(created["experiment"]["id"])
    changes = {"maxSlots": 0, "priority": 7}
    experiments.patch(served.session, id, name="mine", description="words", labels=["one"], resources=changes)
    config = experiments.get(served.session, id)["config"]
    assert (config["name"], config["description"], config["labels"]) == ("mine", "words", ["one"])
    assert config["resources"] == {**created["config"]["resources"], "max_slots": 0, "priority": 7}
    jobs.update(served.session, [{"jobId": created["experiment"]["jobId"], "priority": 3}])
    assert experiments.get(served.session, id)["config"]["resources"]["priority"] == 3


def test_labels_that_no_utf8_spells_are_refused_and_those_of_before_spoil_no_list(served: Served) -> None:
    served.put([experiment(1, labels=["caf\udce9"]), experiment(2)])
    listed = served.session.get("/api/v1/experiments")["experiments"]
    assert [e["labels"] for e in listed] == [["caf?"], []]
    assert served.session.get("/api/v1/experiments/labels")["labels"] == ["caf?"]
    for field in ("name", "description", "notes"):
        with pytest.raises(Refused, match=f"{field}: .*UTF-8"):
            served.session.patch("/api/v1/experiments/2", json={field: "x\udcff"})
    with pytest.raises(Refused, match="labels.*UTF-8"):
        served.session.patch("/api/v1/experiments/2", json={"labels": ["x\udcff"]})
    with pytest.raises(ConfigError, match="labels"):
        served.session.post("/api/v1/experiments", json={"config": 'labels: ["x\\udcff"]\n' + YAML})
    assert ids(served, name="x\udcff") == []


def test_what_cannot_be_shown_is_no_text_of_an_experiment_a_model_or_a_project(served: Served) -> None:
    served.put([experiment(2)])
    session = served.session
    models.create(session, "reader")
    project = workspaces.create_project(session, workspaces.create_workspace(session, "Vision")["id"], "Digits")["id"]
    control, long = "a\x1b[2J", "x" * 100_000
    for path, field in (
        ("experiments/2", "name"),
        ("experiments/2", "description"),
        ("experiments/2", "notes"),
        ("models/reader", "description"),
        ("models/reader", "notes"),
        (f"projects/{project}", "description"),
    ):
        for text in (control, long):
            with pytest.raises(Refused, match=f"the {field} of a"):
                session.patch(f"/api/v1/{path}", json={field: text})
    for path in ("experiments/2", "models/reader"):
        with pytest.raises(Refused, match="the name of a label"):
            session.patch(f"/api/v1/{path}", json={"labels": [control]})
    with pytest.raises(Refused, match="the name of a label"):
        session.put("/api/v1/experiments/2/labels/" + quote(long[:300]), {})
    with pytest.raises(Refused, match="the notes of a note"):
        session.post(f"/api/v1/projects/{project}/notes", {"name": "n", "contents": control})


def test_changes(served: Served) -> None:
    id = served.session.post("/api/v1/experiments", json={"config": YAML, "activate": False})["experiment"]["id"]
    path = f"/api/v1/experiments/{id}"
    changed = served.session.patch(path, json={"id": id, "name": "new", "notes": "n", "labels": ["x"]})["experiment"]
    assert (changed["name"], changed["notes"], changed["labels"], changed["description"]) == ("new", "n", ["x"], "")
    assert served.session.put(f"{path}/labels/y")["labels"] == ["x", "y"]
    assert served.session.delete(f"{path}/labels/x")["labels"] == ["y"]
    assert served.session.get("/api/v1/experiments/labels")["labels"] == ["y"]
    served.session.patch(path, json={"id": id, "resources": {"maxSlots": 3, "priority": 9}})

    def limits() -> tuple[Any, ...]:
        from dethpc.state import queries

        with served.daemon.store.read() as connection:
            fact = queries.experiment(connection, id)
        return fact.max_slots, fact.priority

    assert limits() == (3, 9)
    served.session.patch(path, json={"id": id, "resources": {"maxSlots": None}})
    assert limits() == (None, 9)
    with pytest.raises(Refused):
        served.session.patch(path, json={"id": id, "name": " "})
    with pytest.raises(Refused, match="save_trial_best -1 is invalid"):
        served.session.patch(path, json={"id": id, "checkpointStorage": {"saveTrialBest": -1}})
    changed = served.session.patch(path, json={"id": id, "checkpointStorage": {"saveTrialBest": 7}})["experiment"]
    storage = changed["config"]["checkpoint_storage"]
    assert (storage["save_trial_best"], storage["save_trial_latest"]) == (7, 1)


def test_a_change_that_is_refused_changes_nothing(served: Served) -> None:
    id = served.session.post("/api/v1/experiments", json={"config": YAML, "activate": False})["experiment"]["id"]
    path = f"/api/v1/experiments/{id}"
    before = served.session.get(path)["experiment"]
    policy, mistake = ({"checkpointStorage": {"saveTrialBest": best}} for best in (7, -1))
    for body in (
        {"resources": {"priority": 100}, **policy},
        {"resources": {"weight": 2}, **policy},
        {"name": "new", **mistake},
    ):
        with pytest.raises(Refused):
            served.session.patch(path, json=body)
        after = served.session.get(path)["experiment"]
        assert (after["name"], after["config"]) == (before["name"], before["config"])


def test_the_queue_follows_priority(served: Served) -> None:
    low = {"config": YAML + "resources: {priority: 50}\n"}
    made = [served.session.post("/api/v1/experiments", json=low)["experiment"] for _ in range(2)]
    second = made[1]
    assert served.session.get(f"/api/v1/experiments/{second['id']}")["jobSummary"] == {
        "state": "STATE_QUEUED",
        "jobsAhead": 1,
    }
    served.session.post("/api/v1/job-queues", json={"updates": [{"jobId": second["jobId"], "priority": 1}]})
    jobs = [job["full"]["entityId"] for job in served.session.get("/api/v1/job-queues-v2")["jobs"]]
    assert jobs == [str(second["id"]), str(made[0]["id"])]
    stats = served.session.get("/api/v1/job-queues/stats")["results"]
    assert sum(pool["stats"]["queuedCount"] for pool in stats) == 2


def test_checkpoints_in_order(served: Served) -> None:
    served.put([experiment(1), *(row for id in (1, 2) for row in trained(trial(id)))])

    def listed(**params: Any) -> list[str]:
        answer = served.session.get("/api/v1/experiments/1/checkpoints", params=params)
        return [checkpoint["uuid"] for checkpoint in answer["checkpoints"]]

    assert listed() == [uuid_of(1, 2), uuid_of(2, 2), uuid_of(1, 4), uuid_of(2, 4)]
    best_first = [uuid_of(2, 2), uuid_of(1, 2), uuid_of(2, 4), uuid_of(1, 4)]
    got = listed(sortByAttr="SORT_BY_SEARCHER_METRIC")
    assert got[0] == best_first[0] and got[-1] == best_first[-1] and set(got) == set(best_first)
    assert listed(sortByMetric="accuracy", orderBy="ORDER_BY_DESC", limit=1) == [uuid_of(2, 2)]
    assert listed(sortByMetric="unknown") == [uuid_of(2, 4), uuid_of(1, 4), uuid_of(2, 2), uuid_of(1, 2)]
    assert listed(sortByAttr="SORT_BY_BATCH_NUMBER", orderBy="ORDER_BY_DESC", limit=2) == [uuid_of(2, 4), uuid_of(1, 4)]
    assert listed(states="STATE_DELETED") == []


@pytest.mark.parametrize(
    ("path", "name", "some"),
    [
        ("experiments/1/checkpoints", "sortByAttr", ["UUID", "TRIAL_ID", "SEARCHER_METRIC"]),
        ("experiments/1/trials", "sortBy", ["ID", "BEST_VALIDATION_METRIC"]),
        ("experiments", "sortBy", ["START_TIME", "SEARCHER_METRIC_VAL"]),
    ],
)
def test_a_list_that_cannot_be_sorted_so_says_how_in_words_that_it_takes(
    served: Served, path: str, name: str, some: list[str]
) -> None:
    served.put([experiment(1), *trained(trial(1))])
    with pytest.raises(Refused, match=r"^cannot sort by SORT_BY_NOPE, only by SORT_BY_[A-Z, _]*$") as refused:
        served.session.get(f"/api/v1/{path}", params={name: "SORT_BY_NOPE"})
    allowed = str(refused.value).partition("only by ")[2].split(", ")
    assert {f"SORT_BY_{word}" for word in some} <= {*allowed}
    for word in allowed:
        served.session.get(f"/api/v1/{path}", params={name: word})


def test_the_best_checkpoints_are_those_that_are_there(served: Served) -> None:
    rows = [row for id in (1, 2) for row in trained(trial(id))]
    gone = {uuid_of(2, 2): CheckpointState.DELETED, uuid_of(1, 2): CheckpointState.PARTIALLY_DELETED}
    gone[uuid_of(1, 4)] = CheckpointState.ERROR
    rows = [replace(row, state=gone.get(row.uuid, row.state)) if isinstance(row, Checkpoint) else row for row in rows]
    served.put([experiment(1), *rows])
    found = [each["uuid"] for each in experiments.checkpoints(served.session, 1, best=3)]
    assert found == [uuid_of(1, 2), uuid_of(2, 4)]
    assert len(experiments.checkpoints(served.session, 1)) == 4


def test_checkpoints_without_a_validation_come_last_in_the_order_of_a_metric(served: Served) -> None:
    quiet = [row for row in trained(trial(2)) if not isinstance(row, Metric)]
    served.put([experiment(1), *trained(trial(1)), *quiet])

    def listed(owner: str, **params: Any) -> list[str]:
        answer = served.session.get(f"/api/v1/{owner}/checkpoints", params=params)
        assert answer["pagination"]["total"] == (4 if owner == "experiments/1" else 2)
        return [checkpoint["uuid"] for checkpoint in answer["checkpoints"]]

    best, worse, last = uuid_of(1, 2), uuid_of(1, 4), [uuid_of(2, 4), uuid_of(2, 2)]
    assert listed("experiments/1", sortByAttr="SORT_BY_SEARCHER_METRIC") == [best, worse, *last]
    assert listed("experiments/1", sortByMetric="loss", orderBy="ORDER_BY_DESC") == [worse, best, *last]
    assert listed("experiments/1", sortByMetric="loss", orderBy="ORDER_BY_ASC", offset=1, limit=2) == [worse, last[0]]
    assert listed("trials/2", sortByAttr="SORT_BY_SEARCHER_METRIC") == last


def test_how_the_best_value_was_found(served: Served) -> None:
    served.put([experiment(1), *(row for id in (1, 2) for row in trained(trial(id)))])
    history = served.session.get("/api/v1/experiments/1/validation-history")["validationHistory"]
    assert [(entry["trialId"], entry["searcherMetric"]) for entry in history] == [(1, 1.0), (2, 0.5)]
    best = served.session.get("/api/v1/experiments/1/searcher/best_searcher_validation_metric")
    assert best == {"metric": 0.5}
    names = list(served.session.stream("/api/v1/experiments/metrics-stream/metric-names", params={"ids": 1}))
    assert names[0]["validationMetrics"] == ["accuracy", "loss"] and names[0]["searcherMetrics"] == ["loss"]
    progress = served.session.get("/api/v1/experiments/1/searcher/progress")
    assert progress["trialsByState"] == {"STATE_COMPLETED": 2}


def test_numbers_that_json_lacks_are_spelled_out(served: Served) -> None:
    config = {**CONFIG, "hyperparameters": {"x": float("inf")}}
    rows = trained(trial(1))
    nan = [replace(row, metrics={"loss": float("nan")}) if type(row).__name__ == "Metric" else row for row in rows]
    served.put([experiment(1, config=config), *nan])
    assert served.session.get("/api/v1/experiments/1")["config"]["hyperparameters"] == {"x": "Infinity"}
    workload = served.session.get("/api/v1/trials/1/workloads")["workloads"][0]
    assert workload["training"]["metrics"]["avgMetrics"] == {"loss": "NaN"}
    served.session.get("/api/v1/experiments/1/trials")
    list(served.session.stream("/api/v1/trials/metrics/trial_metrics", params={"trialIds": 1}))


def test_the_best_trials_of_a_page_are_one_query(served: Served) -> None:
    rows: list[Row] = []
    for id in range(1, 21):
        rows.append(experiment(id, smaller_is_better=id % 2 == 1))
        rows += [
            trial(id * 10 + n, id, index=n, best_validation=value) for n, value in enumerate((2.0, 1.0, 3.0, None))
        ]
    served.put(rows)
    asked: list[str] = []
    with served.daemon.store.read() as connection:
        driver: Any = connection.connection.driver_connection
        driver.set_trace_callback(asked.append)
        best = queries.best_trials(connection, range(1, 21))
        driver.set_trace_callback(None)
    assert best == {id: (id * 10 + 1, 1.0) if id % 2 else (id * 10 + 2, 3.0) for id in range(1, 21)}
    assert len(asked) == 1


def test_changes_at_the_same_time_to_an_experiment_that_has_ended_all_count(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    changes: list[Any] = [lambda n=n: served.session.put(f"/api/v1/experiments/1/labels/l{n}") for n in range(12)]
    changes += [
        lambda: served.session.patch("/api/v1/experiments/1", {"notes": "n"}),
        lambda: served.session.patch("/api/v1/experiments/1", {"description": "d"}),
        lambda: served.session.post("/api/v1/experiments/1/archive"),
    ]
    with ThreadPoolExecutor(len(changes)) as threads:
        list(threads.map(lambda change: change(), changes))
    now = served.session.get("/api/v1/experiments/1")["experiment"]
    assert sorted(now["labels"]) == sorted(f"l{n}" for n in range(12))
    assert (now["notes"], now["description"], now["archived"]) == ("n", "d", True)


def test_a_trial_of_a_deleted_experiment_cannot_be_killed(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    served.delete(1)
    with pytest.raises(NotFound, match="trial 1 not found: its experiment 1 was deleted"):
        served.session.post("/api/v1/trials/1/kill")


def test_to_end_what_has_ended_changes_nothing_and_is_no_error(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    before = served.session.get("/api/v1/experiments/1")["experiment"]
    for path in ("/experiments/1/cancel", "/trials/1/kill"):
        assert served.session.post(f"/api/v1{path}") == {}
    assert served.session.post("/api/v1/experiments/1/kill") == {"changed": False}
    assert served.session.get("/api/v1/experiments/1")["experiment"] == before
    assert served.session.get("/api/v1/trials/1")["trial"]["state"] == "STATE_COMPLETED"


def test_what_was_deleted_is_not_found(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1)), experiment(2)])
    served.delete(1)
    for path in ("/experiments/1", "/experiments/1/trials", "/experiments/1/checkpoints", "/trials/1", "/tasks/1.1"):
        with pytest.raises(NotFound, match="experiment 1.* deleted"):
            served.session.get(f"/api/v1{path}")
    with pytest.raises(NotFound):
        served.session.delete("/api/v1/experiments/1")
    assert ids(served, **{"experimentIdFilter.incl": [1, 2]}) == [2] and ids(served, states="STATE_DELETED") == []


def test_a_fork_of_what_is_started_elsewhere_needs_a_command(served: Served) -> None:
    answer = served.session.post("/api/v1/experiments", {"config": "name: mine\n", "unmanaged": True})
    id = int(answer["experiment"]["id"])
    with pytest.raises(ConfigError, match="entrypoint: the unmanaged experiment has none to fork"):
        experiments.create(served.session, yaml.safe_dump(answer["config"]), [file("a.py", "x = 1")], parent=id)
    config = yaml.safe_dump({**answer["config"], "entrypoint": "python3 a.py"})
    fork = experiments.create(served.session, config, [file("a.py", "x = 1")], parent=id, activate=False)
    assert fork["experiment"]["forkedFrom"] == id and not fork["experiment"]["unmanaged"]


def test_who_forks_what_has_lost_its_files_is_told(served: Served) -> None:
    id = int(experiments.create(served.session, YAML, [file("a.py", "x = 1")], activate=False)["experiment"]["id"])
    with served.daemon.store.read() as connection:
        path = served.daemon.installation.home.context(queries.experiment(connection, id).context_sha256)
    path.unlink()
    lost = re.escape(f"experiment {id} has lost its context directory: there is no {path}")
    with pytest.raises(DethpcError, match=lost):
        experiments.create(served.session, YAML, [], parent=id)
    with pytest.raises(DethpcError, match=lost):
        experiments.model_definition(served.session, id)


@pytest.mark.parametrize("states", [[], ["STATE_COMPLETED"]])
def test_the_list_of_all_checkpoints_has_none_of_what_was_deleted(served: Served, states: list[str]) -> None:
    served.put([experiment(1), *trained(trial(1)), experiment(2), *trained(trial(2, experiment_id=2))])
    before = checkpoints.listing(served.session, states=states)
    served.delete(1)
    after = checkpoints.listing(served.session, states=states)
    assert {each["training"]["experimentId"] for each in before["checkpoints"]} == {1, 2}
    assert {each["training"]["experimentId"] for each in after["checkpoints"]} == {2}
    assert after["pagination"]["total"] == len(after["checkpoints"])


def test_a_trial_of_its_own_is_refused_to_an_experiment_of_the_scheduler(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    with pytest.raises(Refused, match="is not unmanaged"):
        served.session.post("/api/v1/trials", {"experimentId": 1, "unmanaged": True, "hparams": {}})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/experiments/{}"),
        ("delete", "/experiments/{}"),
        ("post", "/experiments/{}/kill"),
        ("put", "/experiments/{}/labels/x"),
        ("get", "/trials/{}"),
        ("post", "/trials/{}/kill"),
        ("get", "/users/{}"),
        ("get", "/resource-pools/goodput?days={}"),
    ],
)
def test_a_number_that_no_column_holds_is_the_clients_mistake(served: Served, method: str, path: str) -> None:
    """As an id it names nothing."""
    error, words = (Refused, "out of range") if "?" in path else (NotFound, "not found")
    with pytest.raises(error, match=words):
        getattr(served.session, method)("/api/v1" + path.format(2**63))


def test_an_experiment_is_deleting_until_its_task_has_removed_its_files_and_may_be_deleted_again(
    served: Served,
) -> None:
    served.put([experiment(1), *trained(trial(1))])
    for _ in "ab":
        served.session.delete("/api/v1/experiments/1")  # whoever does it twice, begins it once
    assert served.session.get("/api/v1/experiments/1")["experiment"]["state"] == "STATE_DELETING"
    served.session.post("/api/v1/experiments/1/kill")
    ((task,),) = [served.session.get("/api/v1/tasks")["allocationIdToSummary"].values()]
    assert task["name"] == "Checkpoint GC (Experiment 1)" and task["slotsNeeded"] == 0
    assert served.session.get(f"/api/v1/tasks/{task['taskId']}")["task"]["taskType"] == "TASK_TYPE_CHECKPOINT_GC"
    served.daemon.ledger.do(events.KillTask(task["taskId"], T0))
    (run,) = served.daemon.ledger.state.runs.values()
    served.daemon.ledger.do(events.AttemptEnded(run.id, -1, None, None, T0))
    failed = served.session.get("/api/v1/experiments/1")["experiment"]
    assert failed["state"] == "STATE_DELETE_FAILED" and "killed by a user" in failed["reason"]
    served.delete(1)
    with pytest.raises(NotFound, match="deleted"):
        served.session.get("/api/v1/experiments/1")


def test_an_experiment_is_not_deleted_while_a_trial_would_start_from_its_checkpoint(served: Served) -> None:
    served.put([experiment(2), *trained(trial(2, 2, index=0, latest_checkpoint=uuid_of(2, 4)))])
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": uuid_of(2, 4)}
    config = yaml.safe_dump({**CONFIG, "searcher": source})
    served.session.post("/api/v1/experiments", {"config": config})
    with pytest.raises(
        Refused, match="the trials of experiment 1 start from it|trial 1 of experiment 1 would start from it"
    ):
        served.session.delete("/api/v1/experiments/2")
    served.session.post("/api/v1/experiments/1/kill")
    for run in list(served.daemon.ledger.state.runs.values()):
        served.daemon.ledger.do(events.AttemptEnded(run.id, -1, None, None, T0))
    served.session.delete("/api/v1/experiments/2")
    for source in ({"source_checkpoint_uuid": uuid_of(2, 4)}, {"source_trial_id": 2}):
        config = yaml.safe_dump({**CONFIG, "searcher": {"name": "single", "metric": "loss", **source}})
        with pytest.raises(Refused, match=f"checkpoint {uuid_of(2, 4)} goes with experiment 2, which is being deleted"):
            served.session.post("/api/v1/experiments", {"config": config})


def test_a_checkpoint_of_a_deleted_experiment_is_not_offered_in_its_own_place(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    served.daemon.installation.home.checkpoints.mkdir(parents=True, exist_ok=True)
    served.delete(1)
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": uuid_of(1, 4)}
    with pytest.raises(NotFound, match="its experiment 1 was deleted; it is not in .* either; det checkpoint list"):
        served.session.post("/api/v1/experiments", {"config": yaml.safe_dump({**CONFIG, "searcher": source})})


@pytest.mark.parametrize("source", [{"source_trial_id": 2}, {"source_checkpoint_uuid": uuid_of(2, 4)}])
def test_nothing_begins_at_a_checkpoint_whose_experiment_is_being_deleted(
    served: Served, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any]
) -> None:
    served.put([experiment(2), *trained(trial(2, 2, index=0, latest_checkpoint=uuid_of(2, 4)))])
    config = yaml.safe_dump({**CONFIG, "searcher": {"name": "single", "metric": "loss", **source}})
    keep = contexts.keep

    def deleted_meanwhile(*arguments: Any) -> str:
        served.session.delete("/api/v1/experiments/2")
        return keep(*arguments)

    with monkeypatch.context() as patched, pytest.raises(Refused, match=f"{next(iter(source))}: .*is being deleted"):
        patched.setattr("dethpc.master.experiments.create.contexts.keep", deleted_meanwhile)
        served.session.post("/api/v1/experiments", {"config": config})
    with pytest.raises(Refused, match=f"{next(iter(source))}: .*is being deleted"):
        served.session.post("/api/v1/experiments", {"config": config})
    assert list(served.daemon.ledger.state.experiments) == [2]


def test_an_experiment_that_is_being_deleted_takes_no_metrics(served: Served) -> None:
    """They would make its files anew."""
    served.put([experiment(1, owner=served.owner), *trained(trial(1))])
    served.session.delete("/api/v1/experiments/1")
    with pytest.raises(Refused, match="experiment 1 is DELETING"):
        served.daemon.services.worker_reports.post(
            1, {"group": "test", "steps_completed": 3, "metrics": {"loss": 1}}, None, None
        )


def test_how_the_search_of_a_deleted_experiment_stands_is_not_told(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    served.delete(1)
    with pytest.raises(NotFound):
        served.session.get("/api/v1/experiments/1/search")


@pytest.mark.parametrize("path", ["a" * 5000, "\0", "."])
def test_a_run_directory_that_cannot_be_one_is_refused(served: Served, path: str) -> None:
    with pytest.raises(Refused):
        served.session.post("/api/v1/experiments/import", {"runDirectory": path})


def test_a_checkpoint_that_is_gone_or_damaged_is_nothing_to_start_from(served: Served) -> None:
    gone, damaged = uuid_of(1, 2), uuid_of(1, 4)
    states = {gone: CheckpointState.DELETED, damaged: CheckpointState.ERROR}
    rows = [
        replace(row, state=states[row.uuid], reason="model differs") if isinstance(row, Checkpoint) else row
        for row in trained(trial(1))
    ]
    served.put([experiment(1, owner=served.owner), *rows])
    for uuid, words in ((gone, "was deleted"), (damaged, r"is damaged \(model differs\)")):
        config = YAML.replace("metric: loss", f"metric: loss, source_checkpoint_uuid: {uuid}")
        with pytest.raises(Refused, match=f"source_checkpoint_uuid: checkpoint {uuid} {words}; det checkpoint list 1"):
            served.session.post("/api/v1/experiments", {"config": config, "modelDefinition": [file("t.py")]})


def test_a_checkpoint_that_is_nowhere_is_nothing_to_start_from(served: Served) -> None:
    served.put([experiment(1, owner=served.owner), *trained(trial(1))])
    there = uuid_of(1, 4)

    def create(uuid: str) -> None:
        config = YAML.replace("metric: loss", f"metric: loss, source_checkpoint_uuid: {uuid}")
        served.session.post("/api/v1/experiments", {"config": config, "modelDefinition": [file("t.py")]})

    for uuid, words in ((there[:-1], f"did you mean '{there}'"), ("nothing", "det checkpoint list EXPERIMENT shows")):
        with pytest.raises(NotFound, match=f"checkpoint {uuid} not found; it is not in .* either; .*{words}"):
            create(uuid)
    create(there)
    served.daemon.installation.home.checkpoints.joinpath("of-others").mkdir(parents=True)
    create("of-others")


def test_a_creation_tells_what_is_older_or_doubtful_in_the_text_of_its_configuration(served: Served) -> None:
    older = YAML.replace("name: single", "name: single, max_steps: 3")
    told = experiments.create(served.session, older, [])["configWarnings"]
    assert any(line.startswith("config:") and "max_steps" in line for line in told)
    assert experiments.create(served.session, YAML, [])["configWarnings"] == []
