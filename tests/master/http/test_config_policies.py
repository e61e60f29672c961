"""Configuration policies: what they are, and what is created, continued and moved under them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dethpc.client.nouns import config_policies, experiments, jobs, tasks, workspaces
from dethpc.domain.facts import Experiment
from dethpc.domain.records import ConfigPolicy
from dethpc.errors import ConfigError, NotFound, Refused, StoreError
from dethpc.master.rebuild import recreate
from dethpc.state import open_store
from dethpc.state.queries import records as stored
from tests.master.conftest import Published, Served
from tests.master.http.test_control import YAML

POLICY = """\
invariant_config:
  max_restarts: 1
  environment: {environment_variables: [SITE=alps]}
constraints:
  resources: {max_slots: 2}
"""


def created(served: Served, **changes: Any) -> dict[str, Any]:
    text = yaml.safe_dump({**yaml.safe_load(YAML), **changes})
    return experiments.create(served.session, text, [], activate=False)["experiment"]


def test_the_invariant_configuration_lies_over_every_experiments(served: Served) -> None:
    assert config_policies.get(served.session) == {}
    assert config_policies.put(served.session, POLICY) == config_policies.get(served.session) == yaml.safe_load(POLICY)
    row = created(served, max_restarts=3)
    assert row["config"]["max_restarts"] == 1
    assert "SITE=alps" in str(row["config"]["environment"]["environment_variables"])
    assert yaml.safe_load(row["originalConfig"])["max_restarts"] == 3, "what the user wrote is kept"
    config_policies.delete(served.session)
    assert created(served, max_restarts=3)["config"]["max_restarts"] == 3


def test_who_is_overruled_reads_of_it(served: Served) -> None:
    config_policies.put(served.session, "invariant_config: {max_restarts: 1, searcher: {metric: loss}}")
    config_policies.put(served.session, "invariant_config: {resources: {slots: 0}}", workload="NTSC")
    config = yaml.safe_load(YAML)

    def notes(**changes: Any) -> list[str]:
        answer = experiments.create(served.session, yaml.safe_dump({**config, **changes}), [], activate=False)
        return [note for note in answer["notes"] if "policy" in note]

    note = "max_restarts is 1, not 4: the config policy of this master says so"
    assert (notes(), notes(max_restarts=1), notes(max_restarts=4)) == ([], [], [note])
    config_policies.put(
        served.session,
        "invariant_config: {data: {a: {b: 1}}, entrypoint: [a], environment: {image: {cpu: x}, setup: export A_TOKEN=hush}}",
    )
    mine = {"image": "y", "setup": "export A_TOKEN=mine"}
    overruled = notes(data={"a": 5}, entrypoint="b", environment=mine)
    fields = ["data.a.b", "entrypoint", "environment.image.cpu", "environment.setup"]
    assert [note.split(" is ")[0] for note in overruled] == fields
    assert "hush" not in str(overruled) and "mine" not in str(overruled)
    command = tasks.launch(served.session, "commands", {"entrypoint": ["ls"], "resources": {"slots": 1}}, [])
    assert any(note.startswith("resources.slots is 0, not 1") for note in command["notes"])


def test_those_of_the_master_lie_over_those_of_a_workspace(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    workspaces.create_project(served.session, vision, "Digits")
    config_policies.put(served.session, "invariant_config: {max_restarts: 2, description: theirs}", vision)
    place = {"workspace": "Vision", "project": "Digits"}
    row = created(served, **place)
    assert (row["config"]["max_restarts"], row["config"]["description"]) == (2, "theirs")
    config_policies.put(served.session, "invariant_config: {max_restarts: 1}")
    row = created(served, **place)
    assert (row["config"]["max_restarts"], row["config"]["description"]) == (1, "theirs")
    assert created(served)["config"].get("description") != "theirs"


def test_what_a_constraint_forbids_is_neither_created_nor_moved(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    project = workspaces.create_project(served.session, vision, "Digits")["id"]
    config_policies.put(served.session, "constraints: {resources: {max_slots: 2}, priority_limit: 10}", vision)
    place = {"workspace": "Vision", "project": "Digits"}
    with pytest.raises(Refused, match="resources.slots_per_trial is 3, and the config policy of workspace 2 allows 2"):
        created(served, **place, resources={"slots_per_trial": 3})
    with pytest.raises(Refused, match="resources.max_slots is 8"):
        created(served, **place, resources={"max_slots": 8})
    with pytest.raises(Refused, match="resources.priority is 5, and .* allows no priority before 10"):
        created(served, **place, resources={"priority": 5})
    assert experiments.listing(served.session)["experiments"] == []
    created(served, **place, resources={"slots_per_trial": 2, "priority": 10})
    elsewhere = created(served, resources={"slots_per_trial": 3})["id"]
    with pytest.raises(Refused, match="allows 2 slots"):
        served.session.post(f"/api/v1/experiments/{elsewhere}/move", {"destinationProjectId": project})
    body = {"experimentIds": [elsewhere], "destinationProjectId": project, "projectId": 1}
    (result,) = served.session.post("/api/v1/projects/1/experiments/move", body)["results"]
    assert "allows 2 slots" in result["error"]
    assert experiments.get(served.session, elsewhere)["experiment"]["projectId"] == 1


def test_a_project_moves_where_what_has_not_ended_in_it_is_allowed(served: Served) -> None:
    vision, lab = (workspaces.create_workspace(served.session, name)["id"] for name in ("Vision", "Lab"))
    project = workspaces.create_project(served.session, lab, "Digits")["id"]
    id = created(served, workspace="Lab", project="Digits", resources={"slots_per_trial": 3})["id"]
    config_policies.put(served.session, "constraints: {resources: {max_slots: 2}}", vision)
    refusal = f"experiment {id}: resources.slots_per_trial is 3, and the config policy of workspace {vision} allows 2"
    with pytest.raises(Refused, match=refusal):
        workspaces.move_project(served.session, project, vision)
    assert workspaces.project_by_id(served.session, project)["workspaceId"] == lab
    experiments.act(served.session, id, "kill")
    workspaces.move_project(served.session, project, vision)
    assert workspaces.project_by_id(served.session, project)["workspaceId"] == vision


@pytest.mark.parametrize("way", ["one", "several", "run", "project"])
def test_what_names_no_bound_gets_that_of_where_it_moves_to(served: Served, way: str) -> None:
    vision, lab = (workspaces.create_workspace(served.session, name)["id"] for name in ("Vision", "Lab"))
    there = workspaces.create_project(served.session, vision, "Digits")["id"]
    project = workspaces.create_project(served.session, lab, "Digits of the lab")["id"]
    config_policies.put(served.session, "constraints: {resources: {max_slots: 2}, priority_limit: 60}", vision)
    place = {"workspace": "Lab", "project": "Digits of the lab"}
    free = experiments.create(served.session, yaml.safe_dump({**yaml.safe_load(YAML), **place}), [])["experiment"]["id"]
    bound = created(served, **place, resources={"max_slots": 1})["id"]
    served.session.patch(f"/api/v1/experiments/{bound}", {"resources": {"priority": 70}})
    run = served.session.get(f"/api/v1/experiments/{free}/trials")["trials"][0]["id"] if way == "run" else 0
    to = {"destinationProjectId": there}
    if way == "one":
        served.session.post(f"/api/v1/experiments/{free}/move", to)
    elif way == "several":
        body = {"experimentIds": [free, bound], "projectId": project, **to}
        served.session.post(f"/api/v1/projects/{project}/experiments/move", body)
    elif way == "run":
        served.session.post("/api/v1/runs/move", {"runIds": [run], "sourceProjectId": project, **to})
    else:
        workspaces.move_project(served.session, project, vision)
    resources = [experiments.get(served.session, id)["experiment"]["config"]["resources"] for id in (free, bound)]
    assert [(section["max_slots"], section["priority"]) for section in resources] == [(2, 60), (1, 70)]
    assert [row["priority"] for row in served.session.get("/api/v1/job-queues")["jobs"]] == [60], "of the active one"


def test_what_has_ended_and_what_stays_in_its_workspace_moves_unbound(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    here, there = (workspaces.create_project(served.session, vision, name)["id"] for name in ("Digits", "Letters"))
    place = {"workspace": "Vision", "project": "Digits"}
    free = created(served, **place, resources={"slots_per_trial": 3})["id"]
    ended = created(served, resources={"slots_per_trial": 3})["id"]
    experiments.act(served.session, ended, "kill")
    config_policies.put(served.session, "constraints: {resources: {max_slots: 2}}", vision)
    for id, destination in ((free, there), (ended, here)):
        workspaces.move_experiment(served.session, id, destination)
        row = experiments.get(served.session, id)["experiment"]
        assert (row["projectId"], row["config"]["resources"]["max_slots"]) == (destination, None)


def test_a_project_moves_with_its_bounds_or_not_at_all(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    vision, lab = (workspaces.create_workspace(served.session, name)["id"] for name in ("Vision", "Lab"))
    project = workspaces.create_project(served.session, lab, "Digits")["id"]
    id = created(served, workspace="Lab", project="Digits")["id"]
    config_policies.put(served.session, "constraints: {resources: {max_slots: 2}}", vision)
    commit = type(served.daemon.store).commit

    def fail(store: Any, rows: Any) -> None:
        if any(isinstance(row, Experiment) for row in rows):
            raise StoreError("the disk is full")
        commit(store, rows)

    with monkeypatch.context() as patch:
        patch.setattr(type(served.daemon.store), "commit", fail)
        with pytest.raises(Exception, match="the disk is full"):
            workspaces.move_project(served.session, project, vision)
    assert workspaces.project_by_id(served.session, project)["workspaceId"] == lab
    workspaces.move_project(served.session, project, vision)
    assert workspaces.project_by_id(served.session, project)["workspaceId"] == vision
    assert experiments.get(served.session, id)["experiment"]["config"]["resources"]["max_slots"] == 2
    assert any(f'"workspace_id":{vision}' in line.replace(" ", "") for line in served.daemon.parts.home.records.open())


@pytest.mark.parametrize(
    "body",
    [
        {"resources": {"maxSlots": -1}},
        {"resources": {"maxSlots": 10**20}},
        {"checkpointStorage": {"saveTrialBest": 10**20}},
    ],
)
def test_a_number_that_no_configuration_has_is_a_mistake_and_changes_nothing(
    served: Served, body: dict[str, Any]
) -> None:
    row = created(served)
    with pytest.raises(Refused, match="greater than or equal to 0|less than|whole number from 0"):
        served.session.patch(f"/api/v1/experiments/{row['id']}", body)
    assert experiments.get(served.session, row["id"])["experiment"]["config"] == row["config"]


def test_lists_of_a_policy_do_not_grow_with_forks_and_what_is_continued(served: Served) -> None:
    config_policies.put(served.session, POLICY)
    row = created(served, environment={"environment_variables": ["A=1"]})
    fork = experiments.create(served.session, yaml.safe_dump(row["config"]), [], activate=False, parent_id=row["id"])
    variables = fork["experiment"]["config"]["environment"]["environment_variables"]
    assert variables == row["config"]["environment"]["environment_variables"]
    assert str(variables).count("SITE=alps") == str(variables).count("A=1")
    single = {"name": "single", "metric": "loss"}
    id = created(served, searcher=single, environment={"environment_variables": ["A=1"]})["id"]
    experiments.act(served.session, id, "kill")
    override = "environment: {environment_variables: [B=2]}"
    served.session.post("/api/v1/experiments/continue", {"id": id, "overrideConfig": override})
    variables = experiments.get(served.session, id)["config"]["environment"]["environment_variables"]
    assert str(variables).count("SITE=alps") == str(variables).count("A=1") == str(variables).count("B=2")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("constraints: {priority_limit: 100}", "constraints.priority_limit"),
        ("invariant: {}", "invariant"),
        ("invariant_config: [1]", "invariant_config"),
        ("invariant_config: {max_restart: 1}", "invariant_config.max_restart"),
        ("invariant_config: {max_restarts: -1}", "invariant_config.max_restarts"),
        ("constraints: {x: 1}\ninvariant_config: {max_restart: 1}", "invariant_config.max_restart"),
        ("constraints: {max_slots: 1}", "constraints.max_slots"),
        ("constraints: {resources: {slots: 1}}", "constraints.resources.slots"),
        ("constraints: {resources: {max_slots: 0}}", "constraints.resources.max_slots"),
        ("constraints: {priority_limit: x}", "constraints.priority_limit"),
        ("{", "YAML"),
        ("[]", "config"),
    ],
)
def test_mistakes_are_named_and_nothing_is_set(served: Served, text: str, field: str) -> None:
    with pytest.raises(ConfigError) as mistake:
        config_policies.put(served.session, text)
    assert field in {problem.field for problem in mistake.value.problems}
    assert config_policies.get(served.session) == {}


def test_a_mistake_that_a_policy_makes_of_a_configuration_says_where_each_value_is_written(served: Served) -> None:
    config_policies.put(served.session, "invariant_config: {searcher: {name: random}}")
    with pytest.raises(ConfigError) as mistake:
        created(served, searcher={"name": "single", "metric": "loss"}, max_restarts="x")
    places = {problem.field: problem.file for problem in mistake.value.problems}
    assert places["max_restarts"] == "config" and places["searcher.max_trials"] == "config policy of this master"


def test_other_kinds_of_work_have_none(served: Served) -> None:
    with pytest.raises(NotFound):
        served.session.get("/api/v1/config-policies/global/OTHER")
    with pytest.raises(NotFound):
        config_policies.get(served.session, 99)


def test_a_rebuild_brings_them_back(served: Served, tmp_path: Path) -> None:
    config_policies.put(served.session, POLICY)
    with open_store(tmp_path / "again.db") as again:
        recreate(served.daemon.services.installation.home, again)
        with again.read() as connection:
            (row,) = stored.find(connection, ConfigPolicy)
    assert (row.workspace_id, row.constraints) == (0, {"resources": {"max_slots": 2}})


def test_the_published_client_works_with_them(published: Published, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    assert "max_restarts: 1" in published.det("config-policies", "set", "experiment", f"{tmp_path}/p.yaml")
    assert "SITE=alps" in published.det("config-policies", "describe", "experiment")
    published.det("config-policies", "delete", "experiment")
    assert "max_restarts" not in published.det("config-policies", "describe", "experiment")


def test_who_names_no_bound_is_bound_too(served: Served) -> None:
    config_policies.put(served.session, "constraints: {resources: {max_slots: 1}, priority_limit: 60}")
    row = created(served)
    assert (row["config"]["resources"]["max_slots"], row["config"]["resources"]["priority"]) == (1, 60)
    for resources in ({"maxSlots": 9}, {"priority": 1}):
        with pytest.raises(Refused, match="config policy of this master"):
            served.session.patch(f"/api/v1/experiments/{row['id']}", {"resources": resources})
    served.session.patch(f"/api/v1/experiments/{row['id']}", {"resources": {"maxSlots": None}})
    assert experiments.get(served.session, row["id"])["experiment"]["config"]["resources"]["max_slots"] == 1


def test_who_takes_a_bound_back_gets_what_the_policies_fix(served: Served) -> None:
    fixing = "invariant_config: {resources: {max_slots: %d}}"
    config_policies.put(served.session, fixing % 8, 1)
    path = f"/api/v1/experiments/{created(served)['id']}"

    def patched(max_slots: int | None) -> Any:
        answer = served.session.patch(path, {"resources": {"maxSlots": max_slots}})
        return answer["experiment"]["config"]["resources"]["max_slots"]

    assert patched(None) == 8
    with pytest.raises(Refused, match="max_slots cannot be 9: the config policy of workspace 1 says 8"):
        patched(9)
    config_policies.put(served.session, fixing % 4)
    assert patched(None) == patched(4) == 4, "that of the master lies over that of the workspace"
    with pytest.raises(Refused, match="max_slots cannot be 8: the config policy of this master says 4"):
        patched(8)
    config_policies.put(served.session, f"{fixing % 4}\nconstraints: {{resources: {{max_slots: 2}}}}")
    with pytest.raises(Refused, match="max_slots is 4, and the config policy of this master allows 2"):
        patched(None)


def test_the_queue_takes_no_priority_before_the_limit(served: Served) -> None:
    job = experiments.create(served.session, YAML, [])["experiment"]["jobId"]
    command = tasks.launch(served.session, "commands", {"entrypoint": ["ls"]}, [])["command"]["jobId"]
    config_policies.put(served.session, "constraints: {priority_limit: 10}", 1)
    config_policies.put(served.session, "constraints: {priority_limit: 20}", 1, "NTSC")

    def update(id: str, priority: int) -> None:
        served.session.post("/api/v1/job-queues", {"updates": [{"jobId": id, "priority": priority}]})

    for id, limit in ((job, 10), (command, 20)):
        with pytest.raises(Refused, match=f"is {limit - 1}, and .* allows no priority before {limit}"):
            update(id, limit - 1)
        update(id, limit)
    priorities = {row["jobId"]: row["priority"] for row in served.session.get("/api/v1/job-queues")["jobs"]}
    assert priorities == {job: 10, command: 20}


def test_the_queue_takes_nothing_else_that_a_policy_forbids(served: Served) -> None:
    first, second = (experiments.create(served.session, YAML, [])["experiment"]["jobId"] for _ in range(2))
    jobs.update(served.session, [{"jobId": first, "priority": 5}])
    config_policies.put(served.session, "constraints: {priority_limit: 10}", 1)
    jobs.update(served.session, [{"jobId": first, "resourcePool": "default"}])
    for change in ({"jobId": second, "aheadOf": first}, {"jobId": second, "behindOf": first}):
        with pytest.raises(Refused, match="resources.priority is 5, and .* allows no priority before 10"):
            jobs.update(served.session, [change])
    jobs.update(served.session, [{"jobId": first, "priority": 20}, {"jobId": second, "aheadOf": first}])
    config_policies.put(served.session, "invariant_config: {resources: {resource_pool: default, weight: 1.0}}", 1)
    for change, value in (({"resourcePool": "large"}, "resource_pool"), ({"weight": 9}, "weight")):
        with pytest.raises(Refused, match=f"resources.{value} cannot be .*: the config policy of workspace 1 says"):
            jobs.update(served.session, [{"jobId": first, **change}])
    with pytest.raises(Refused, match="resources.weight cannot be 9.*: the config policy of workspace 1 says"):
        served.session.patch("/api/v1/experiments/1", {"resources": {"weight": 9}})


def test_policies_of_now_bind_what_is_continued(served: Served) -> None:
    id = created(served)["id"]
    experiments.act(served.session, id, "kill")
    config_policies.put(served.session, f"{POLICY}  priority_limit: 10\n")
    with pytest.raises(Refused, match="resources.priority is 5, and .* allows no priority before 10"):
        served.session.post("/api/v1/experiments/continue", {"id": id, "overrideConfig": "resources: {priority: 5}"})
    with pytest.raises(Refused, match="resources.max_slots is 8"):
        served.session.post("/api/v1/experiments/continue", {"id": id, "overrideConfig": "resources: {max_slots: 8}"})
    assert experiments.get(served.session, id)["config"]["max_restarts"] != 1
    served.session.post("/api/v1/experiments/continue", {"id": id, "overrideConfig": "max_restarts: 7"})
    config = experiments.get(served.session, id)["config"]
    assert (config["max_restarts"], config["resources"]["max_slots"]) == (1, 2)


def test_secrets_that_were_shown_masked_stay_what_they_are(served: Served) -> None:
    text = "invariant_config: {environment: {environment_variables: [A_TOKEN=abc]}}"
    masked = config_policies.put(served.session, text)
    assert "abc" not in str(masked) and "********" in str(masked)
    config_policies.put(served.session, yaml.safe_dump(masked))
    (row,) = served.daemon.services.records.find(ConfigPolicy)
    assert "A_TOKEN=abc" in str(row.invariant_config)
    with pytest.raises(ConfigError):
        config_policies.put(served.session, text.replace("A_TOKEN=abc", "'B_TOKEN=********'"))


def test_a_policy_says_neither_where_an_experiment_is_nor_nothing(served: Served) -> None:
    for field in ("workspace", "project"):
        with pytest.raises(ConfigError, match="a policy cannot say where"):
            config_policies.put(served.session, f"invariant_config: {{{field}: Vision}}")
    for text in ("", "null", "{}"):
        with pytest.raises(Refused, match="there is nothing to set"):
            config_policies.put(served.session, text)


def test_tasks_have_policies_of_their_own(served: Served) -> None:
    policy = """
        invariant_config: {environment: {environment_variables: [SITE=alps]}, resources: {is_single_node: true}}
        constraints: {resources: {max_slots: 1}, priority_limit: 50}
    """
    assert config_policies.put(served.session, policy, workload="NTSC") == yaml.safe_load(policy)
    assert config_policies.get(served.session) == {}, "experiments have none"
    answer = tasks.launch(served.session, "commands", {"entrypoint": ["ls"]}, [])
    assert "SITE=alps" in str(answer["config"]["environment"]["environment_variables"])
    assert answer["config"]["resources"]["is_single_node"] is True and answer["config"]["resources"]["priority"] == 50
    with pytest.raises(Refused, match="allows 1"):
        tasks.launch(served.session, "commands", {"entrypoint": ["ls"], "resources": {"slots": 2}}, [])
    with pytest.raises(Refused, match="no priority before 50"):
        tasks.set_priority(served.session, "commands", answer["command"]["id"], 3)
    with pytest.raises(Refused, match="no priority before 50"):
        tasks.create_generic(served.session, "{entrypoint: ls, resources: {priority: 4}}", [])
    with pytest.raises(ConfigError, match="searcher"):
        config_policies.put(served.session, "invariant_config: {searcher: {name: single}}", workload="NTSC")
