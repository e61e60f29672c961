"""Nodes over HTTP: who uses them, which are left out; and where slots went."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import PoolConfig
from dethpc.domain.facts import Attempt, NodeHealth, Run, Task
from dethpc.domain.ports import QueuedJob
from dethpc.domain.states import AttemptState, End, RunState, State, TaskKind
from dethpc.errors import NotFound, Refused, SubmitRejected
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.rebuild import recreate
from dethpc.rundir.home import Home
from dethpc.state import open_store
from tests.master.conftest import T0, Published, Served, experiment, run_of, trained, trial


def node_of(served: Served) -> str:
    return served.daemon.services.cluster.nodes()[0].name


def test_a_node_says_who_uses_it(served: Served) -> None:
    name = node_of(served)
    busy = trial(3, state=State.ACTIVE, ended_at=None)
    served.put(
        [experiment(1), busy, run_of(busy, state=RunState.RUNNING, nodes=[name], slots=2, scheduler_job_id="77")]
    )
    (agent,) = served.session.get("/api/v1/agents")["agents"]
    (use,) = agent["uses"]
    assert (use["trialId"], use["experimentId"], use["taskId"]) == (3, 1, "1.3")
    assert (use["allocationId"], use["slots"]) == ("1.3.1.0", 2)
    assert (agent["enabled"], agent["excluded"], agent["otherJobs"], agent["failures"]) == (True, False, 0, 0)


def test_a_node_says_which_command_uses_it(served: Served) -> None:
    name, id = node_of(served), "0c5e1f5e-0000-4000-8000-000000000001"
    task = Task(id, TaskKind.COMMAND, id, "me", State.ACTIVE, T0, name="ls", pool="default", slots=1)
    run = Run(f"{id}.1", None, id, 1, RunState.RUNNING, T0, 1, "default", nodes=[name])
    served.put([task, run])
    (agent,) = served.session.get("/api/v1/agents")["agents"]
    assert [(use["taskId"], use["name"], use["trialId"], use["experimentId"]) for use in agent["uses"]] == [
        (id, "ls", None, None)
    ]


def test_a_run_that_ended_since_slurm_was_asked_is_nobody_elses_job(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = node_of(served)
    served.put(
        [experiment(1), trial(3), run_of(trial(3), state=RunState.ENDED, nodes=[name], slots=2, scheduler_job_id="77")]
    )
    jobs = [
        QueuedJob("77", mine=True, running=True),
        QueuedJob("78", mine=True, running=True),
        QueuedJob("9", False, True),
    ]
    monkeypatch.setattr(
        served.daemon.services.cluster, "running_jobs", lambda: {name: {job.job_id: job for job in jobs}}
    )
    (agent,) = served.session.get("/api/v1/agents")["agents"]
    assert (agent["uses"], agent["otherJobs"]) == ([], 2)


def test_disable_and_enable_are_kept_and_known_after_a_rebuild(served: Served, tmp_path: Path) -> None:
    name = node_of(served)
    told = served.session.post(f"/api/v1/agents/{name}/disable", json={"reason": "smells"})["agent"]
    assert (told["enabled"], told["excluded"], told["excludedUntil"]) == (False, True, None)
    assert told["reason"] == "smells"
    assert not any(slot["enabled"] for slot in told["slots"].values())
    assert served.daemon.ledger.state.nodes[name].excluded(T0 * 2)
    with served.daemon.store.read():
        assert served.daemon.store.load().of(NodeHealth) == [served.daemon.ledger.state.nodes[name]]
    ChangeLog(served.daemon.installation.home).append(served.daemon.store.load().of(NodeHealth))
    with open_store(tmp_path / "again.db") as again:
        (Home(served.daemon.installation.home.root).experiments).mkdir(exist_ok=True)
        recreate(served.daemon.installation.home, again)
        assert [node.reason for node in again.load().of(NodeHealth)] == ["smells"]
    told = served.session.post(f"/api/v1/agents/{name}/enable")["agent"]
    assert (told["enabled"], told["excluded"], told["reason"]) == (True, False, "")
    with pytest.raises(NotFound):
        served.session.post("/api/v1/agents/n99/disable")


def test_single_slots_are_slurms(served: Served) -> None:
    with pytest.raises(Refused, match="det agent disable"):
        served.session.post(f"/api/v1/agents/{node_of(served)}/slots/000/disable")


def test_the_published_client_enables_and_disables(published: Published, served: Served) -> None:
    name = node_of(served)
    published.det("agent", "disable", name)
    assert f"Disabled agent {name}." in published.errors
    assert "False" in published.det("agent", "list")
    published.det("agent", "disable", "--drain", name)
    published.det("agent", "enable", "--all")
    assert not served.daemon.ledger.state.nodes[name].excluded(T0 * 2)
    assert "det agent disable" in str(published.det("slot", "disable", name, "000", code=1) + published.errors)


def test_the_one_node_that_there_is_is_never_left_out(served: Served) -> None:
    name = node_of(served)
    (note,) = served.session.post(f"/api/v1/agents/{name}/disable")["notes"]
    assert f"no other node of default can be used, so this has no effect until one can: trials run on {name}" in note
    builder = served.daemon.builder
    config = ExperimentConfig.from_json(experiment().config)
    assert builder._left_out(-1, config) == []
    with pytest.raises(
        SubmitRejected, match=f"its log policies exclude {name}, and pool default has too few other nodes"
    ):
        builder._left_out(-1, config, [name])


def test_goodput_of_an_experiment_its_trials_and_the_pool(served: Served) -> None:
    rows = [replace(row, end=End.COMPLETED) if isinstance(row, Attempt) else row for row in trained(trial(1))]
    served.put(
        [experiment(1), *rows, experiment(2, kind=TaskKind.UNMANAGED_TRIAL), *trained(trial(9, experiment_id=2))]
    )
    other = trial(2)
    failed = Attempt(run_of(other).id, 0, 1, "1.2", AttemptState.ENDED, T0 + 12, T0 + 22, end=End.NODE_FAIL)
    served.put([other, run_of(other, slots=4, ended_at=T0 + 22), failed])
    found = served.session.get("/api/v1/experiments/1/goodput")
    by_trial = {each["trialId"]: each for each in found["trials"]}
    assert by_trial[1]["useful"] == by_trial[1]["allocated"] == 88 and by_trial[1]["goodput"] == 1
    assert (by_trial[2]["overhead"], by_trial[2]["waiting"], by_trial[2]["goodput"]) == (40, 40, 0)
    assert found["total"]["allocated"] == 128 and found["pagination"]["total"] == 2
    page = served.session.get("/api/v1/experiments/1/goodput", params={"limit": 1, "offset": 1})
    assert page["trials"] == [by_trial[2]] and page["total"] == found["total"]
    assert page["pagination"] == {"offset": 1, "limit": 1, "startIndex": 1, "endIndex": 2, "total": 2}
    without = served.session.get("/api/v1/experiments/1/goodput", params={"trials": "false"})
    assert without["trials"] == [] and without["total"] == found["total"]
    assert served.session.get("/api/v1/trials/2/goodput")["total"]["overhead"] == 40
    assert served.session.get("/api/v1/experiments/2/goodput")["total"]["allocated"] == 0, "it ran elsewhere"
    (pool,) = served.session.get("/api/v1/resource-pools/goodput", params={"days": 36500})["pools"]
    assert (pool["resourcePool"], pool["allocated"]) == ("default", 128)
    with pytest.raises(NotFound):
        served.session.get("/api/v1/experiments/99/goodput")


def test_what_is_held_against_a_node_is_shown(served: Served) -> None:
    name = node_of(served)
    served.daemon.store.commit(
        [NodeHealth(name, [{"at": T0}], excluded_since=T0, excluded_until=T0 * 2, reason="3 failures of 2 trials")]
    )
    (agent,) = served.session.get("/api/v1/agents")["agents"]
    assert (agent["failures"], agent["excluded"], agent["reason"]) == (1, True, "3 failures of 2 trials")
    assert agent["excludedUntil"].startswith("2081")


def test_the_configuration_that_counts_has_the_pools(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PoolConfig(partition="gpu", time_limit="60")
    monkeypatch.setattr(
        served.daemon.installation, "site", served.daemon.installation.site.model_copy(update={"pools": {"a": pool}})
    )
    found = served.session.get("/api/v1/master/config")["config"]
    assert found["pools"] == {"a": {"partition": "gpu", "time_limit": "60"}}
