"""Runs that were submitted without a master, and become experiments afterwards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from dethpc.domain.states import TaskKind
from dethpc.errors import DethpcError
from dethpc.rundir.claim import claim
from dethpc.rundir.files import create_once
from dethpc.rundir.journal import JournalWriter
from dethpc.rundir.layout import RunDir
from dethpc.state import queries
from tests.master.conftest import CONFIG, Served


def finished_run(served: Served) -> Path:
    answer = served.session.post("/api/v1/experiments/render", json={"config": yaml.safe_dump(CONFIG)})
    run = RunDir(Path(answer["runDirectory"]))
    claim(run, "77")
    attempt, at = run.attempt(0), time.time()
    attempt.make()
    create_once(attempt.started, {"at": at, "job_id": "77", "nodes": ["n0"], "resumed_from": None, "resumed_steps": 0})
    with JournalWriter(attempt.journal) as journal:
        journal.append("metrics", {"group": "validation", "steps_completed": 2, "metrics": {"loss": 2.0}})
    create_once(attempt.end, {"at": at + 5, "finished": True, "exit_code": 0})
    return run.path


def import_run(served: Served, path: Path) -> int:
    answer = served.session.post("/api/v1/experiments/import", json={"runDirectory": str(path)})
    return int(answer["experiment"]["id"])


def test_an_imported_run_says_where_it_comes_from_whatever_its_notes_say(served: Served) -> None:
    path = finished_run(served)
    id = import_run(served, path)
    served.session.patch(f"/api/v1/experiments/{id}", json={"notes": "mine"})
    with served.daemon.store.read() as connection:
        experiment = queries.experiment(connection, id)
        run = queries.run(connection, path.name)
        task = queries.task(connection, run.task_id)
    assert (experiment.kind, experiment.imported_run, experiment.notes) == (TaskKind.IMPORTED_TRIAL, path.name, "mine")
    assert (task.kind, task.experiment_id) == (TaskKind.IMPORTED_TRIAL, id)


def test_a_run_is_imported_once_although_its_experiment_has_ended_and_left_memory(served: Served) -> None:
    path = finished_run(served)
    id = import_run(served, path)
    served.daemon.ledger.look(lambda state: state.evict_ended())
    assert id not in served.daemon.ledger.state.experiments
    with pytest.raises(DethpcError, match=f"is experiment {id} already"):
        import_run(served, path)
    with served.daemon.store.read() as connection:
        (trial,) = queries.trials_of_experiment(connection, id)
        assert [run.id for run in queries.runs_of_trial(connection, trial.id)] == [path.name]
        assert queries.run(connection, path.name).experiment_id == id
