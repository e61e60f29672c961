"""The job queue over the REST API, by its own client and by the published one."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from dethpc.client.nouns import experiments, jobs, tasks, workspaces
from dethpc.config.site import PoolConfig
from dethpc.domain.facts import Task
from dethpc.domain.states import State, TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.engine import events
from dethpc.engine.queueing.pools import Rules
from dethpc.errors import ConfigError, DethpcError, Refused, SchedulerUnavailable
from dethpc.master.http.nouns.jobs import _find
from tests.master.conftest import Published, Served

YAML = """
name: digits
entrypoint: python3 train.py
searcher: {name: random, metric: loss, max_trials: 3, max_concurrent_trials: 2}
hyperparameters: {lr: {type: double, minval: 0.001, maxval: 0.1}}
resources: {slots_per_trial: 2}
"""


def create(served: Served, text: str = YAML) -> dict[str, Any]:
    made: dict[str, Any] = served.session.post("/api/v1/experiments", json={"config": text})["experiment"]
    return made


def update(served: Served, *updates: dict[str, Any]) -> None:
    served.session.post("/api/v1/job-queues", json={"updates": list(updates)})


def listed(served: Served, **params: Any) -> list[dict[str, Any]]:
    return [job["full"] for job in served.session.get("/api/v1/job-queues-v2", params=params)["jobs"]]


def order(served: Served) -> list[int]:
    return [int(job["entityId"]) for job in listed(served)]


def share(served: Served) -> None:
    served.daemon.installation.site.pools["default"] = PoolConfig(scheduler="fair_share")
    served.daemon.ledger.state.rules = {"default": Rules("fair_share")}


def test_the_queue_is_shown_while_the_scheduler_has_not_answered_yet(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise SchedulerUnavailable("sinfo: Unable to contact slurm controller")

    id = create(served)["id"]
    monkeypatch.setattr(served.daemon.services.cluster, "pools", away)
    assert order(served) == [id]
    with pytest.raises(DethpcError, match=r"does not answer; try again when it does \(sinfo: Unable to contact"):
        served.session.get("/api/v1/resource-pools")


def test_a_job_in_the_queue(served: Served) -> None:
    made = create(served)
    (job,) = listed(served)
    assert (job["jobId"], job["type"], job["name"]) == (made["jobId"], "TYPE_EXPERIMENT", "digits")
    assert (job["allocatedSlots"], job["requestedSlots"]) == (0, 4), "two trials of two slots wait"
    assert job["summary"] == {"state": "STATE_QUEUED", "jobsAhead": 0}
    assert listed(served, resourcePool="elsewhere") == []
    served.session.post(f"/api/v1/experiments/{made['id']}/pause")
    assert listed(served) == []


def test_jobs_are_moved_by_the_beginning_of_their_ids(served: Served) -> None:
    first, second, third = (create(served) for _ in range(3))
    update(served, {"jobId": third["jobId"][:8], "aheadOf": second["jobId"][:8]})
    assert order(served) == [first["id"], third["id"], second["id"]]
    update(served, {"jobId": first["jobId"], "behindOf": second["jobId"]}, {"jobId": second["jobId"], "priority": 1})
    assert order(served) == [second["id"], third["id"], first["id"]]
    assert [job["summary"]["jobsAhead"] for job in listed(served)] == [0, 1, 2]


def test_jobs_are_moved_by_the_numbers_of_their_experiments(served: Served) -> None:
    first, second, third = (create(served) for _ in range(3))
    update(served, {"jobId": str(third["id"]), "aheadOf": str(second["id"])})
    assert order(served) == [first["id"], third["id"], second["id"]]
    served.session.post(f"/api/v1/experiments/{second['id']}/pause")
    with pytest.raises(DethpcError, match=f"job {second['id']} not found in the queue"):
        update(served, {"jobId": str(second["id"]), "priority": 1})


def test_a_number_that_begins_anothers_job_id_is_refused() -> None:
    known = {"1234abcd-0000": "7", "ffff0000-0000": "1234"}
    with pytest.raises(Refused, match="job 1234 could be 1234abcd-0000 or ffff0000-0000"):
        _find(known, "1234")
    assert (_find(known, "1234a"), _find(known, "7")) == ("1234abcd-0000", "1234abcd-0000")


def test_a_batch_with_a_mistake_changes_nothing(served: Served) -> None:
    first, second = create(served), create(served)
    for wrong in (
        {"jobId": first["jobId"], "weight": 3},
        {"jobId": "11111111-1111", "priority": 1},
        {"jobId": "", "priority": 1},
        {"jobId": first["jobId"], "priority": 0},
        {"jobId": first["jobId"], "aheadOf": "nobody"},
        {"jobId": first["jobId"], "resourcePool": "nowhere"},
        {"jobId": first["jobId"], "resourcePool": "default", "priority": 3},
    ):
        with pytest.raises((DethpcError, ConfigError)):
            update(served, {"jobId": second["jobId"], "aheadOf": first["jobId"]}, wrong)
    assert order(served) == [first["id"], second["id"]]


def test_an_unknown_pool_is_answered_with_those_that_there_are(served: Served) -> None:
    made = create(served)
    with pytest.raises(ConfigError) as found:
        update(served, {"jobId": made["jobId"], "resourcePool": "nowhere"})
    assert "default" in str(found.value.problems[0])


def test_shares_go_by_weight_and_by_nothing_else(served: Served) -> None:
    share(served)
    first, second = create(served), create(served, YAML.replace("slots_per_trial: 2", "slots_per_trial: 2, weight: 3"))
    assert order(served) == [second["id"], first["id"]]
    update(served, {"jobId": first["jobId"], "weight": 8})
    assert order(served) == [first["id"], second["id"]]
    for wish in ({"priority": 1}, {"aheadOf": second["jobId"]}):
        with pytest.raises(DethpcError, match="fair_share scheduler"):
            update(served, {"jobId": first["jobId"], **wish})
    with pytest.raises(DethpcError, match="set a weight"):
        served.session.patch(f"/api/v1/experiments/{first['id']}", json={"resources": {"priority": 2}})


def test_the_published_cli_lists_and_changes_the_queue(published: Published) -> None:
    served = published.served
    assert isinstance(served, Served)
    first, second = create(served), create(served)
    published.det("job", "update", second["jobId"], "--priority", "7")
    table = published.det("job", "list").splitlines()
    columns = [cell.strip() for cell in table[0].split("|")]
    assert columns == "#,ID,Type,Job Name,Priority,Submitted,Slots (acquired/needed),State,User".split(",")
    assert second["jobId"] in table[2] and "digits (2)" in table[2] and "| 0/4 " in table[2]
    assert first["jobId"] in table[3]
    published.det("job", "update-batch", f"{first['jobId']}.priority=3", f"{second['jobId']}.priority=4")
    assert order(served) == [first["id"], second["id"]]
    published.det("job", "update", first["jobId"], "--weight", "2", code=1)
    assert "set a priority" in published.errors
    published.det("job", "update", first["jobId"], "--resource-pool", "nowhere", code=1)
    share(served)
    published.det("experiment", "set", "weight", str(first["id"]), "2.5")
    published.det("job", "update-batch", f"{second['jobId']}.weight=2")
    published.det("experiment", "set", "max-slots", str(first["id"]), "2")
    weights = {job["entityId"]: job["weight"] for job in json.loads(published.det("job", "ls", "--json"))["jobs"]}
    assert weights == {str(first["id"]): 2.5, str(second["id"]): 2}
    assert "Weight" in published.det("job", "list", "-p", "default")


TASK = "0c5e1f5e-0000-4000-8000-000000000001"


def command(served: Served) -> None:
    """No route makes one yet."""
    wish = events.CreateTask(TASK, TaskKind.COMMAND, "me", "ls", {}, "default", 1, time.time())
    served.daemon.ledger.do(wish)


def test_a_command_is_listed_and_moved_among_experiments(served: Served) -> None:
    first, second = create(served), create(served)
    command(served)
    job = listed(served)[-1]
    assert (job["jobId"], job["entityId"], job["type"], job["name"]) == (TASK, TASK, "TYPE_COMMAND", "ls")
    assert (job["requestedSlots"], job["allocatedSlots"], job["isPreemptible"]) == (1, 0, False)
    update(served, {"jobId": TASK[:8], "aheadOf": second["jobId"]})
    assert [job["jobId"] for job in listed(served)] == [first["jobId"], TASK, second["jobId"]]
    update(served, {"jobId": first["jobId"], "behindOf": TASK})
    assert [job["jobId"] for job in listed(served)] == [TASK, first["jobId"], second["jobId"]]
    with pytest.raises(ConfigError, match="elsewhere"):
        update(served, {"jobId": TASK, "resourcePool": "elsewhere"})


def test_a_command_is_found_by_its_id_with_what_ran_of_it(served: Served) -> None:
    command(served)
    (run,) = served.daemon.ledger.state.runs.values()
    served.daemon.ledger.do(events.Submitted(run.id, "77", time.time()))
    served.daemon.ledger.do(events.AttemptStarted(run.id, 0, [], None, 0, time.time()))
    task = served.session.get(f"/api/v1/tasks/{TASK}")["task"]
    assert (task["taskId"], task["taskType"], task["endTime"]) == (TASK, "TASK_TYPE_COMMAND", None)
    assert [allocation["allocationId"] for allocation in task["allocations"]] == [f"{run.id}.0"]


def test_the_published_client_reads_a_command(served: Served, published: Published) -> None:
    command(served)
    assert TASK in published.det("job", "list")


def test_what_a_pools_queue_does_not_go_by_is_told_at_creation(served: Served) -> None:
    def notes(**resources: Any) -> list[str]:
        config = {"name": "x", "entrypoint": "x", "searcher": {"name": "single", "metric": "l"}, "resources": resources}
        answer = served.session.post("/api/v1/experiments", json={"config": json.dumps(config), "validateOnly": True})
        return [note for note in answer["notes"] if "no effect" in note]

    assert notes(weight=3) == ["resources.weight has no effect: pool default has the priority scheduler"]
    assert notes(priority=3) == notes(weight=1) == []
    share(served)
    assert notes(priority=3) == ["resources.priority has no effect: pool default has the fair_share scheduler"]
    assert notes(weight=3) == []


def test_what_a_command_waits_for_is_told_among_the_jobs(served: Served) -> None:
    config = TaskSettings({}).to_json()
    task = Task(TASK, TaskKind.COMMAND, "queued", "me", State.ACTIVE, 1.0, reason="It waits for a node", config=config)
    served.put([task])
    waits = jobs.waiting(served.session)["queued"]
    assert (waits["text"], waits["count"], waits["groups"][0]["text"]) == (task.reason, 1, task.reason)


def test_the_queue_is_listed_by_project_and_by_workspace(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    digits = workspaces.create_project(served.session, vision, "Digits")["id"]
    here = experiments.create(served.session, YAML, [], project=digits)["experiment"]["id"]
    other = experiments.create(served.session, YAML, [])["experiment"]["id"]
    task = tasks.launch(served.session, "commands", {"entrypoint": ["ls"]}, [])["command"]["id"]

    def listed(**where: int) -> list[str]:
        return [str(job["entityId"]) for job in jobs.queue(served.session, **where)[0]]

    inside = tasks.launch(served.session, "commands", {"entrypoint": ["ls"]}, [], workspaceId=vision)["command"]["id"]
    assert sorted(listed()) == sorted([str(here), str(other), task, inside])
    assert listed(projectId=digits) == [str(here)]
    assert sorted(listed(workspaceId=vision)) == sorted([str(here), inside])
    assert sorted(listed(workspaceId=1)) == sorted([str(other), task])
    (job,) = jobs.queue(served.session, projectId=digits)[0]
    assert (job["workspaceId"], job["projectId"]) == (vision, digits)
    assert listed(projectId=1) == [str(other)], "a task is in no project"
    workspaces_of = {job["entityId"]: job["workspaceId"] for job in jobs.queue(served.session)[0]}
    assert workspaces_of == {str(here): vision, str(other): 1, task: 1, inside: vision}
