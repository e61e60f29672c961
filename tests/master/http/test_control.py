"""Continuing experiments, and actions on many at a time, as the published client asks for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dethpc.client.nouns import experiments
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.errors import ConfigError, NotFound, Refused
from dethpc.state import queries
from tests.master.conftest import T0, Published, Served, experiment, trained, trial, uuid_of

YAML = """
name: digits
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: {batches: 100}}
hyperparameters: {lr: {type: double, minval: 0.001, maxval: 0.1}, width: 8}
"""
CONTINUE = "/api/v1/experiments/continue"


def created(served: Served, config: str = YAML, *, ended: bool = True) -> int:
    id = int(experiments.create(served.session, config, [], activate=False)["experiment"]["id"])
    if ended:
        experiments.act(served.session, id, "kill")
    return id


def test_the_published_cli_continues_an_experiment_with_a_changed_configuration(
    published: Published, served: Served
) -> None:
    id = created(served)
    before = next(experiments.trials(served.session, id))
    (published.folder / "more.yaml").write_text("max_restarts: 9\nmin_validation_period: {epochs: 2}\n")
    said = published.det(
        "experiment", "continue", str(id), "--config-file", "more.yaml", "--config", "searcher.max_length.batches=200"
    )
    assert f"Continued experiment {id}" in said
    answer = experiments.get(served.session, id)
    config = answer["config"]
    assert (config["max_restarts"], config["min_validation_period"]) == (9, {"epochs": 2})
    assert config["searcher"]["max_length"] == {"batches": 200} and config["searcher"]["name"] == "single"
    assert answer["experiment"]["state"] == "STATE_QUEUED" and answer["experiment"]["endTime"] is None
    (after,) = experiments.trials(served.session, id)
    assert (after["id"], after["hparams"], after["state"]) == (before["id"], before["hparams"], "STATE_QUEUED")
    again = published.det("experiment", "continue", str(id), code=1)
    assert "in non terminal state 'ACTIVE', try again later" in again + published.errors


def test_an_experiment_that_a_former_master_ended_goes_on_from_its_latest_checkpoint(served: Served) -> None:
    config = {**experiment().config, "searcher": {"name": "single", "metric": "loss", "smaller_is_better": True}}
    served.put([experiment(1, config=config, owner=served.owner), *trained(trial(1, latest_checkpoint=uuid_of(1, 4)))])
    longer = "searcher: {max_length: {batches: 5}}"
    answer = served.session.post(CONTINUE, json={"id": 1, "overrideConfig": longer})
    assert answer["notes"] == []
    state = served.daemon.ledger.state
    known = state.trial(1)
    assert known is not None and (known.latest_checkpoint, known.runs) == (uuid_of(1, 4), 2)
    assert set(state.checkpoints[1]) == {uuid_of(1, 2), uuid_of(1, 4)}


def test_who_continues_what_has_trained_its_length_is_told(served: Served) -> None:
    searcher = {"name": "single", "metric": "loss", "smaller_is_better": True, "max_length": {"batches": 4}}
    config = {**experiment().config, "searcher": searcher}
    served.put([experiment(1, config=config, owner=served.owner), *trained(trial(1, latest_checkpoint=uuid_of(1, 4)))])
    (note,) = served.session.post(CONTINUE, json={"id": 1})["notes"]
    assert "trial 1 has trained 4 batches already, and searcher.max_length says 4: it ends at once" in note


def test_what_could_not_be_deleted_does_not_go_on(served: Served) -> None:
    """The job that was to remove its files may be late, and remove those of the training."""
    id = created(served)
    served.session.delete(f"/api/v1/experiments/{id}")
    ledger = served.daemon.ledger
    (run,) = [run for run in ledger.state.runs.values() if not ledger.state.tasks[run.task_id].kind.trains]
    ledger.do(events.KillTask(run.task_id, T0))
    ledger.do(events.AttemptEnded(run.id, -1, None, None, T0))
    with pytest.raises(Refused, match="is DELETE_FAILED, its files may be gone; delete it again"):
        served.session.post(CONTINUE, json={"id": id})


def test_what_cannot_change_is_named(served: Served) -> None:
    id = created(served)
    for change, words in {
        "searcher: {name: random, max_trials: 3}": "override config must have single searcher type got 'random'",
        "searcher: {metric: accuracy}": "searcher.metric",
        "searcher: {source_trial_id: 1}": "searcher.source_trial_id",
        "project: another": "project",
        "checkpoint_storage: {storage_path: elsewhere}": "checkpoint_storage",
        "reproducibility: {experiment_seed: 3}": "reproducibility.experiment_seed",
        "max_restart: 3": "max_restarts",
        "resources: {resource_pool: nowhere}": "nowhere",
    }.items():
        with pytest.raises((ConfigError, Refused), match=words):
            served.session.post(CONTINUE, json={"id": id, "overrideConfig": change})
    assert experiments.get(served.session, id)["experiment"]["state"] == "STATE_CANCELED"


def test_the_configuration_that_was_shown_changes_nothing(served: Served) -> None:
    storage = "checkpoint_storage: {type: shared_fs, host_path: /tmp, storage_path: x}\n"
    secret = "environment: {environment_variables: {cpu: [TOKEN_SECRET=abc]}}\n"
    id = created(served, YAML + storage + secret)
    config = experiments.get(served.session, id)["config"]
    with served.daemon.store.read() as connection:
        stored = queries.experiment(connection, id).config
    served.session.post(CONTINUE, json={"id": id, "overrideConfig": json.dumps(config)})
    after = served.daemon.ledger.state.experiment(id).row.config
    assert {k: v for k, v in after.items() if k != "environment"} == {
        k: v for k, v in stored.items() if k != "environment"
    }
    assert set(after["environment"]["environment_variables"]["cpu"]) == {"TOKEN_SECRET=abc"}


def test_a_search_takes_no_changes_and_others_are_not_continued(served: Served) -> None:
    id = created(served, YAML.replace("name: single,", "name: random, max_trials: 2,"))
    with pytest.raises(Refused, match="not single searcher, got 'random' instead.*: det experiment fork 1 --config"):
        served.session.post(CONTINUE, json={"id": id, "overrideConfig": "max_restarts: 3"})
    served.session.post(CONTINUE, json={"id": id, "overrideConfig": "{}\n"})
    assert [trial["state"] for trial in experiments.trials(served.session, id)] == ["STATE_QUEUED"] * 2
    with pytest.raises(NotFound):
        served.session.post(CONTINUE, json={"id": 99})


def test_a_fork_without_files_has_those_of_its_parent(served: Served) -> None:
    files = [{"path": "train.py", "type": ord("0"), "content": "cHJpbnQoKQ=="}]
    parent = experiments.create(served.session, YAML, files, activate=False)["experiment"]["id"]
    fork = experiments.create(served.session, YAML, [], activate=False, parent=parent)["experiment"]
    assert fork["forkedFrom"] == parent
    assert experiments.model_definition(served.session, fork["id"]) == experiments.model_definition(
        served.session, parent
    )


def test_actions_on_many_judge_each_alone(published: Published, served: Served, tmp_path: Path) -> None:
    first, second = created(served, ended=False), created(served, ended=False)
    served.put([experiment(7, owner=served.owner)])
    got = published.python(
        "def many(action, ids, project=1, call=bindings, **filters):\n"
        "    body = getattr(bindings, f'v1{action}ExperimentsRequest')(experimentIds=ids, projectId=project,\n"
        "        filters=bindings.v1BulkExperimentFilters(**filters) if filters else None)\n"
        "    verb = 'delete' if action == 'Delete' else 'post'\n"
        "    call = getattr(bindings, f'{verb}_{action}Experiments')\n"
        "    return [(r.id, r.error) for r in call(sess, body=body, projectId=project).results]\n"
        f"a, b = {first}, {second}\n"
        "print(json.dumps([many('Activate', [a, 99, b, 7]), many('Pause', [a, b], -1), many('Archive', [a, 7]),\n"
        "  many('Unarchive', [7]), many('Kill', [a]), many('Cancel', [b, b]),\n"
        "  many('Archive', [], excludedExperimentIds=[b, 7], name='DIGITS'),\n"
        "  many('Delete', [a, b], states=[bindings.experimentv1State.COMPLETED])]))"
    )
    activated, paused, archived, unarchived, killed, cancelled, filtered, deleted = got
    assert [id for id, _ in activated] == [first, 99, second, 7]
    assert [bool(error) for _, error in activated] == [False, True, False, True]
    assert "not found" in activated[1][1] and "COMPLETED" in activated[3][1]
    assert paused == [[first, ""], [second, ""]]
    assert [bool(error) for _, error in archived] == [True, False]
    assert unarchived == [[7, ""]]
    assert killed == [[first, ""]] and cancelled == [[second, ""]]
    assert [id for id, _ in filtered] == [first]
    assert deleted == [[7, ""]]
    assert experiments.get(served.session, 7)["experiment"]["state"] == "STATE_DELETING"


def test_a_filter_that_is_not_known_and_another_project_are_refused(served: Served) -> None:
    served.put([experiment(1, owner=served.owner)])
    path = "/api/v1/projects/{}/experiments/archive"
    with pytest.raises(Exception, match="(?i)extra|unknown|not permitted|colour"):
        served.session.post(path.format(1), json={"experimentIds": [], "filters": {"colour": "blue"}})
    with pytest.raises(Refused, match="states: there is no state 'BLUE', only ACTIVE, "):
        served.session.post(path.format(1), json={"experimentIds": [], "filters": {"states": ["STATE_BLUE"]}})
    with pytest.raises(NotFound, match="project 5"):
        served.session.post(path.format(5), json={"experimentIds": [1]})
    with pytest.raises(NotFound, match="project 0 not found"):
        served.session.post("/api/v1/projects/1/experiments/move", json={"experimentIds": [1]})
    answer = served.session.post(path.format(-1), json={"experimentIds": [], "filters": {"userIds": [2]}})
    assert answer["results"] == []
    assert served.session.get("/api/v1/experiments/1")["experiment"]["archived"] is False
    assert State.COMPLETED.value in served.session.get("/api/v1/experiments/1")["experiment"]["state"]


def test_a_filter_means_all_that_it_finds_and_not_a_page_of_them(served: Served) -> None:
    served.put([experiment(number, owner=served.owner) for number in range(1, 122)])
    asked = {"experimentIds": [], "filters": {"excludedExperimentIds": [121]}}
    answer = served.session.post("/api/v1/projects/1/experiments/archive", json=asked)
    assert answer["results"] == [{"id": number, "error": ""} for number in range(1, 121)]
    left = served.session.get("/api/v1/experiments", {"archived": False, "limit": -1})["experiments"]
    assert [each["id"] for each in left] == [121]
