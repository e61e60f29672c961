"""Tasks without a trial over the REST API: what is launched, previewed and refused."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from dethpc.client.nouns import workspaces
from dethpc.domain.records import Workspace
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.errors import NotFound, StoreError
from dethpc.master.tasks import launching
from tests.master.conftest import Published, Served, experiment, trained, trial

Json = dict[str, Any]


def live(served: Served) -> list[Json]:
    rows: list[Json] = served.session.get("/api/v1/launched-tasks?live=true")["tasks"]
    return rows


def test_a_preview_shows_the_configuration_and_launches_nothing(served: Served) -> None:
    request = {"config": {"idle_timeout": "20m"}, "preview": True, "files": []}
    answer = served.session.post("/api/v1/notebooks", request)
    assert answer["config"]["idle_timeout"] == "20m" and answer["config"]["resources"]["slots"] == 1
    assert answer["notebook"]["id"] == "" and answer["notebook"]["description"] == "Notebook"
    home = served.daemon.parts.home
    assert live(served) == [] and not home.contexts.exists()
    assert not home.environments.exists() or os.listdir(home.environments) == []
    served.session.post("/api/v1/notebooks", {**request, "preview": False})
    assert len(live(served)) == 1


def test_determineds_client_previews_a_notebook(served: Served, published: Published) -> None:
    printed = published.det("notebook", "start", "--preview", "--config", "resources.slots=0")
    assert yaml.safe_load(printed)["resources"]["slots"] == 0 and live(served) == []


def test_a_field_that_means_nothing_for_a_kind_is_noted(served: Served) -> None:
    config = {"entrypoint": "true", "idle_timeout": "1h", "tensorboard_args": ["--samples"]}
    notes = served.session.post("/api/v1/commands", {"config": config})["notes"]
    assert [note.partition(" has no effect on a command task")[0] for note in notes] == [
        "idle_timeout",
        "tensorboard_args",
    ]
    config = {"entrypoint": "true", "slurm": {"sbatch_args": ["--output=mine.log", "--time=1:00:00"]}}
    (note,) = served.session.post("/api/v1/commands", {"config": config})["notes"]
    assert "--output=mine.log is left out: dethpc writes the log" in note
    config = {"entrypoint": "true", "workspace": "Vision", "project": "Digits"}
    notes = served.session.post("/api/v1/commands", {"config": config})["notes"]
    assert [note.partition(" has no effect on a task")[0] for note in notes] == ["workspace", "project"]
    config = {"idle_timeout": "1h", "notebook_idle_type": "activity"}
    assert served.session.post("/api/v1/notebooks", {"config": config})["notes"] == []


def test_nothing_is_launched_in_an_archived_workspace(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    project = workspaces.create_project(served.session, vision, "Digits")["id"]
    served.session.post(f"/api/v1/workspaces/{vision}/archive")
    for noun in ("commands", "notebooks", "shells"):
        with pytest.raises(NotFound, match="'Vision' is archived: unarchive it, or choose another workspace"):
            served.session.post(f"/api/v1/{noun}", {"config": {"entrypoint": "true"}, "workspaceId": vision})
    with pytest.raises(NotFound, match="'Digits' is archived: unarchive it"):
        served.session.post("/api/v1/generic-tasks", {"config": "entrypoint: 'true'", "projectId": project})
    assert live(served) == []


def launched_in(served: Served, workspace_id: int) -> str:
    body = {"config": {"resources": {"slots": 0}}, "workspaceId": workspace_id}
    return str(served.session.post("/api/v1/notebooks", body)["notebook"]["id"])


def test_tasks_end_with_their_workspace(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    inside, outside = launched_in(served, vision), launched_in(served, 1)
    (run,) = (run for run in served.daemon.parts.live_runs() if run.task_id == inside)
    served.daemon.ledger.do(events.Submitted(run.id, "41", time.time()))
    ended = served.session.post("/api/v1/commands", {"config": {"entrypoint": "true"}, "workspaceId": vision})
    served.session.post(f"/api/v1/commands/{ended['command']['id']}/kill")
    in_it = {"workspaceId": str(vision)}
    assert [row["id"] for row in served.session.get("/api/v1/notebooks", in_it)["notebooks"]] == [inside]
    workspaces.delete_workspace(served.session, vision)
    for number in (vision, 999):
        with pytest.raises(NotFound, match=f"workspace {number} not found"):
            served.session.get("/api/v1/notebooks", {"workspaceId": str(number)})
    row = served.session.get(f"/api/v1/notebooks/{inside}")["notebook"]
    assert (row["state"], row["reason"]) == ("STATE_TERMINATING", "workspace 'Vision' was deleted")
    assert served.daemon.ledger.state.tasks[outside].state is State.ACTIVE
    assert any('"deleted":true' in line.replace(" ", "") for line in served.daemon.parts.home.records.open())
    with pytest.raises(NotFound):
        launched_in(served, vision)


def test_a_workspace_is_deleted_with_its_tasks_or_not_at_all(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    inside, store, commit = launched_in(served, vision), served.daemon.store, type(served.daemon.store).commit

    def fail(store: Any, rows: Any) -> None:
        if any(isinstance(row, Workspace) for row in rows):
            raise StoreError("the disk is full")
        commit(store, rows)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "commit", fail)
        with pytest.raises(Exception, match="the disk is full"):
            workspaces.delete_workspace(served.session, vision)
    assert served.daemon.ledger.state.tasks[inside].state is State.ACTIVE
    assert workspaces.workspace(served.session, "Vision")["id"] == vision
    workspaces.delete_workspace(served.session, vision)
    assert served.daemon.ledger.state.tasks[inside].state is State.STOPPING_KILLED


def test_a_task_is_launched_before_its_workspace_is_deleted_or_not_at_all(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    resolved = launching.Launcher._resolved

    def deleted_meanwhile(*arguments: Any) -> Any:
        workspaces.delete_workspace(served.session, vision)
        return resolved(*arguments)

    monkeypatch.setattr(launching.Launcher, "_resolved", deleted_meanwhile)
    with pytest.raises(NotFound, match=f"workspace {vision} not found"):
        launched_in(served, vision)
    assert live(served) == []


def test_a_notebook_that_reports_itself_idle_for_long_enough_ends(served: Served) -> None:
    config = {"idle_timeout": "0s", "resources": {"slots": 0}}
    id = served.session.post("/api/v1/notebooks", {"config": config})["notebook"]["id"]
    path = f"/api/v1/notebooks/{id}/report_idle"
    served.session.put(path, {"notebookId": id, "idle": False})
    assert id in [row["id"] for row in live(served)]
    served.session.put(path, {"notebookId": id, "idle": True})
    row = served.session.get(f"/api/v1/notebooks/{id}")["notebook"]
    assert row["state"] in ("STATE_TERMINATING", "STATE_TERMINATED") and row["reason"] == "idle for 0s (idle_timeout)"
    served.session.put(path, {"notebookId": id, "idle": True})


def test_a_notebook_whose_use_is_reported_does_not_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    id = served.session.post("/api/v1/notebooks", {"config": {"idle_timeout": "10m"}})["notebook"]["id"]
    launcher, now = served.daemon.services.launcher, 1000.0
    task = served.daemon.ledger.state.tasks[id]
    # In the launcher alone: an event loop whose clock goes back sleeps for as long.
    monkeypatch.setattr(launching, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    for minutes, idle, killed in (
        (0, True, False),
        (9, True, False),
        (1, False, False),
        (9, True, False),
        (10, True, True),
    ):
        now += minutes * 60
        launcher.report_idle(task, idle=idle)
        state = served.daemon.ledger.state.tasks.get(id)
        assert (state is None or state.state is not State.ACTIVE) is killed, minutes


def test_a_refusal_says_what_the_task_of_an_id_is(served: Served) -> None:
    served.put([experiment(1, owner=served.owner), *trained(trial(1, 1))])
    with pytest.raises(NotFound, match=r"task 1\.1 not found: the task of this id is that of trial 1"):
        served.session.post("/api/v1/tasks/1.1/pause")
    command = served.session.post("/api/v1/commands", {"config": {"entrypoint": "true"}})["command"]["id"]
    with pytest.raises(NotFound, match=f"shell {command} not found: the task of this id is of the kind COMMAND"):
        served.session.post(f"/api/v1/shells/{command}/kill")


def test_a_tensorboard_shows_nothing_that_was_deleted(served: Served) -> None:
    gone = replace(experiment(1, owner=served.owner), state=State.DELETED)
    served.put([gone, *trained(trial(1, 1))])
    with pytest.raises(NotFound, match="experiment 1 not found: it was deleted"):
        served.session.post("/api/v1/tensorboards", {"config": {}, "experimentIds": [1]})
