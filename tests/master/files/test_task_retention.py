"""What tasks without a trial leave on disk goes some time after their end, and nothing that others need."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dethpc.domain.facts import Run, Task
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.errors import Refused
from dethpc.master.durable import contexts
from dethpc.master.experiments import environments
from dethpc.master.files.retention import DAY, TaskRetention
from dethpc.rundir.home import Home
from tests.master.conftest import T0, Served, experiment, launched

END = T0 + 100
NOW = END + 10 * DAY


def home_of(served: Served) -> Home:
    return served.daemon.parts.home


def retention(served: Served, days: float | None) -> TaskRetention:
    return TaskRetention(served.daemon.store, home_of(served), lambda: None, days)


def context(home: Home, text: str) -> str:
    """The SHA-256 of a stored context, which nobody has touched for long."""
    sha256 = contexts.keep(home, text.encode())
    os.utime(home.context(sha256), (T0, T0))
    return sha256


def ended(served: Served, id: str, sha256: str, **fields: object) -> Path:
    """The run directory of a task that has ended."""
    home = home_of(served)
    settings = TaskSettings.of(launched(id))._replace(context_sha256=sha256)
    task: Task = launched(id, config=settings.to_json(), **{"ended_at": END, **fields})
    run = Run(f"{id}.1", None, id, 1, RunState.ENDED, T0, 1, "default")
    served.put([task, run])
    environments.keep(home, id, environments.own())
    home.run(run.id).make()
    home.run(run.id).attempt(0).make()
    return home.run(run.id).path


def test_files_of_a_task_go_when_they_are_due_and_not_before(served: Served) -> None:
    home = home_of(served)
    sha256 = context(home, "its own")
    old, young = ended(served, "old", sha256), ended(served, "young", sha256, ended_at=END + 5 * DAY)
    assert retention(served, None).delete_due(NOW) == retention(served, 11).delete_due(NOW) == 0
    assert retention(served, 7).delete_due(NOW) == 1
    assert not old.exists() and not home.environment("old").exists()
    assert young.exists() and home.environment("young").exists()
    assert home.context(sha256).exists(), "the other task may be forked"
    assert retention(served, 4).delete_due(NOW) == 1 and not home.context(sha256).exists()
    assert retention(served, 4).delete_due(NOW) == 0
    assert served.session.get("/api/v1/launched-tasks/old")["task"]["taskState"] == "STATE_COMPLETED"


def test_what_runs_and_what_experiments_have_stays(served: Served) -> None:
    home = home_of(served)
    shared = context(home, "also an experiment's")
    live = ended(served, "live", context(home, "a live task's"), state=State.ACTIVE, ended_at=None)
    ended(served, "old", shared)
    served.put([experiment(1, context_sha256=shared)])
    assert retention(served, 0).delete_due(NOW) == 1
    assert live.exists() and home.environment("live").exists() and home.context(shared).exists()
    assert len(list(home.contexts.glob("*.tar.gz"))) >= 2


def test_a_context_that_somebody_has_just_sent_again_stays(served: Served) -> None:
    home = home_of(served)
    sha256 = context(home, "sent again")
    ended(served, "old", sha256)
    contexts.keep(home, b"sent again")
    assert retention(served, 0).delete_due(time.time()) == 1 and home.context(sha256).exists()


def test_a_task_whose_files_are_gone_cannot_be_forked(served: Served) -> None:
    ended(served, "old", context(home_of(served), "its own"), kind=TaskKind.GENERIC)
    retention(served, 7).delete_due(NOW)
    with pytest.raises(Refused, match="has lost its context directory"):
        served.session.post("/api/v1/generic-tasks", {"forkedFrom": "old"})
