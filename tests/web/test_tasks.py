"""The pages of launched tasks, without a browser."""

from __future__ import annotations

import re

import pytest

from dethpc.client.nouns import experiments
from dethpc.domain.attempts.service_state import ServiceState
from dethpc.domain.facts import Run, Task
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.rundir.files import write_json
from tests.master.conftest import Served, launched
from tests.web.conftest import Visitor


def launch(served: Served, **fields: object) -> Task:
    """A task that the engine knows."""
    config = {"entrypoint": "sleep 100", **fields}
    answer = served.session.post("/api/v1/commands", {"config": config})
    return served.daemon.ledger.state.tasks[answer["command"]["id"]]


def listed(visitor: Visitor, query: str = "") -> list[str]:
    return re.findall(r'<tr data-row id="task-([^"]+)"', visitor.get(f"tasks{query}").text)


@pytest.fixture
def ended(served: Served) -> None:
    served.put(
        [
            launched("one", created_at=10.0),
            launched("two", TaskKind.NOTEBOOK, created_at=20.0),
            launched("three", TaskKind.GENERIC, created_at=30.0, state=State.CANCELED),
        ]
    )


def test_tasks_of_all_kinds_are_listed_the_newest_first_and_filtered(
    visitor: Visitor, served: Served, ended: None
) -> None:
    live = launch(served).id
    assert listed(visitor) == [live, "three", "two", "one", "broken"]
    assert listed(visitor, "?kind=command") == [live, "one", "broken"]
    assert listed(visitor, "?kind=notebook&kind=generic") == ["three", "two"]
    assert listed(visitor, "?show=live") == [live]
    assert listed(visitor, "?show=ended&kind=command") == ["one", "broken"]
    assert "No task fits these filters." in visitor.get("tasks?kind=shell").text
    assert "The last page" in visitor.get("tasks?offset=500").text


def test_a_task_that_failed_says_why_in_red(visitor: Visitor) -> None:
    for page in ("tasks", "tasks/broken"):
        assert re.search(r'class="failed">&lt;script&gt;', visitor.get(page).text), page
    assert 'class="note bad" aria-label="Why it failed"' in visitor.get("tasks/broken").text
    assert "Kill" not in visitor.get("tasks/broken").text.partition("<main")[2].partition("<dialog")[0]


def test_a_task_is_killed_after_a_question_and_gets_another_priority(visitor: Visitor, served: Served) -> None:
    task = launch(served)
    page = f"tasks/{task.id}"
    assert visitor.post(f"{page}/act", {"action": "priority", "priority": "7"}).headers["location"].endswith(task.id)
    assert served.daemon.ledger.state.tasks[task.id].priority == 7 and "<dd>7</dd>" in visitor.get(page).text
    for wrong in ("0", "100", "x", ""):
        location = visitor.post(f"{page}/act", {"action": "priority", "priority": wrong}).headers["location"]
        assert "is%20not%20a%20priority" in location, wrong
    assert "Yes, kill" in visitor.post(f"{page}/act", {"action": "kill"}).text
    assert not served.daemon.ledger.state.tasks[task.id].state.stopping
    assert visitor.post(f"{page}/act", {"action": "kill", "confirmed": "1"}).status == 303
    row = served.session.get(f"/api/v1/launched-tasks/{task.id}")["task"]
    assert row["state"] in ("STATE_TERMINATING", "STATE_TERMINATED")
    assert "there%20is%20no%20action" in visitor.post(f"{page}/act", {"action": "none"}).headers["location"]


def test_the_configuration_of_a_task_shows_no_secret(visitor: Visitor, served: Served) -> None:
    task = launch(served, environment={"environment_variables": ["API_TOKEN=hunter2", "COLOUR=blue"]})
    shown = visitor.get(f"tasks/{task.id}/configuration").text
    assert "sleep 100" in shown and "COLOUR=blue" in shown and "hunter2" not in shown


def test_a_task_says_when_the_time_limit_of_its_job_ends_it(
    visitor: Visitor, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.daemon.services.launcher, "_has_limits", True)  # as on Slurm
    task = launch(served, slurm={"sbatch_args": ["--time=01:00:00"]})
    page = f"tasks/{task.id}"
    assert "time limit" not in visitor.get(page).text, "it has not started"
    run = Run("r", None, task.id, 99, RunState.RUNNING, 1.0, 1, "default", started_at=86_400.0)
    served.put([run])
    assert served.session.get(f"/api/v1/launched-tasks/{task.id}")["task"]["endsAt"].startswith("1970-01-02T01:00:00")
    assert re.search(r'time limit of its job ends it <time datetime="1970-01-02T01:00:00', visitor.get(page).text)
    assert '<time datetime="1970-01-02T01:00:00' in visitor.get("tasks").text


def test_a_task_that_is_idle_says_when_that_ends_it(visitor: Visitor, served: Served) -> None:
    served.put([launched("n", TaskKind.NOTEBOOK, state=State.ACTIVE, ended_at=None)])
    served.put([Run("n.1", None, "n", 1, RunState.RUNNING, 1.0, 1, "default", attempt=0, started_at=2.0)])
    attempt = served.daemon.parts.home.run("n.1").attempt(0)
    attempt.make()
    for state in (ServiceState(), ServiceState(ready=True)):
        write_json(attempt.service, state.to_json())
        assert "idle_timeout" not in visitor.get("tasks/n").text
    write_json(attempt.service, ServiceState(True, 86_400.0).to_json())
    assert served.session.get("/api/v1/launched-tasks/n")["task"]["idleEndsAt"].startswith("1970-01-02T00:00:00")
    assert re.search(r'idle_timeout ends it <time datetime="1970-01-02T00:00:00', visitor.get("tasks/n").text)
    assert '<time datetime="1970-01-02T00:00:00' in visitor.get("tasks").text


def test_a_command_is_launched_from_a_form_that_keeps_what_was_refused(visitor: Visitor, served: Served) -> None:
    form = {"action": "launch", "program": "sleep 100", "slots": "1", "pool": "default", "work_dir": "/tmp"}
    for wrong in ({"slots": "many"}, {"program": " "}, {"work_dir": "not/absolute"}, {"pool": "none"}):
        got = visitor.post("tasks/new", {**form, **wrong})
        (value,) = wrong.values()
        assert got.status == 422 and 'class="problems"' in got.text, wrong
        assert "none" in wrong.values() or f'value="{value}"' in got.text, "nobody types it again"
    got = visitor.post("tasks/new", form)
    assert got.status == 303, got.text
    (task,) = served.session.get("/api/v1/launched-tasks?live=true")["tasks"]
    assert f"tasks/{task['id']}/logs" in got.headers["location"]
    config = served.session.get(f"/api/v1/launched-tasks/{task['id']}")["config"]
    assert config["entrypoint"] == "sleep 100" and config["work_dir"] == "/tmp"


def test_a_form_that_runs_code_asks_who_has_shown_no_proof(visitor: Visitor, served: Served) -> None:
    visitor.proof = ""
    got = visitor.post("tasks/new", {"action": "launch", "program": "sleep 100", "slots": "1", "pool": "default"})
    assert got.status == 403 and "Is it you?" in got.text
    assert served.session.get("/api/v1/launched-tasks?live=true")["tasks"] == []


def test_a_tensorboard_is_launched_from_an_experiment_and_from_a_comparison(visitor: Visitor, served: Served) -> None:
    config = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"
    experiment = experiments.create(served.session, config, [], activate=False)["experiment"]["id"]
    for page in (f"experiments/{experiment}", "compare?trials=1,2"):
        assert "TensorBoard</button>" in visitor.get(page).text, page
    got = visitor.post("tensorboards", {"action": "launch", "experiment": str(experiment)})
    (task,) = served.session.get("/api/v1/launched-tasks?live=true")["tasks"]
    assert task["taskType"] == "TASK_TYPE_TENSORBOARD" and f"tasks/{task['id']}" in got.headers["location"]
    refused = visitor.post("tensorboards", {"action": "launch", "back": "compare?trials=1,2"}).headers["location"]
    assert "needs%20an%20experiment" in refused and "compare?trials=1,2" in refused


def test_what_a_task_serves_is_opened_by_a_link_for_who_may_run_code(visitor: Visitor, served: Served) -> None:
    served.put([launched("n", TaskKind.NOTEBOOK, state=State.ACTIVE, ended_at=None)])
    refused = visitor.post("tasks/n/act", {"action": "open"})
    assert "does%20not%20run" in refused.headers["location"], "and no link is shown"
    visitor.proof = ""
    assert "Is it you?" in visitor.post("tasks/n/act", {"action": "open"}).text


def test_determineds_client_sends_browsers_to_the_page_of_the_task(visitor: Visitor) -> None:
    got = visitor.get("interactive/one/jupyter-lab/Notebook/main/%2Fdet%2Fwait%2Fjupyter-lab%2Fone")
    assert got.status == 303 and got.headers["location"].endswith("tasks/one")
