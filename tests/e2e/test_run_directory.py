"""The files of a run that has ended, and archives of earlier releases: what stands on disks is read for years.

``run_directory.json`` holds the names and types of each file's values; DETHPC_DRAW_GOLDEN=1 writes it anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User

GOLDEN = Path(__file__).with_name("run_directory.json")
ARCHIVES = sorted((Path(__file__).parents[1] / "fixtures" / "releases").glob("*/experiment.zip"))
HPARAMS_ASIDE = ("config", "hparams", "checkpoint_storage", "storage", "resources")
"""Of spec.json: its values are held by tests/master/submissions."""


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "..." if key in HPARAMS_ASIDE else shape(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def shape_of(path: Path) -> Any:
    text = path.read_text()
    if path.suffix == ".json":
        return shape(json.loads(text))
    if path.suffix == ".jsonl":
        events = [json.loads(line.split(" ", 3)[3]) for line in text.splitlines()]
        return {event["kind"]: shape(event) for event in events}
    if path.suffix == ".log":
        return sorted({len(line.split("\t", 4)) for line in text.splitlines()})  # fields of its lines
    return "text" if text else "empty"


def test_a_run_that_has_ended_leaves_the_files_that_readers_know(user: User) -> None:
    experiment = user.create(
        searcher={"name": "single", "metric": "validation_loss"}, hyperparameters={"lr": 0.1, "steps": 2}
    )
    user.det("experiment", "wait", str(experiment))
    folder = user.home / "runs" / "1.1.1"
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): shape_of(path) for path in paths}
    if os.environ.get("DETHPC_DRAW_GOLDEN") == "1":
        GOLDEN.write_text(json.dumps(files, indent=1, sort_keys=True) + "\n")
    assert files == json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_an_archive_of_an_earlier_release_becomes_an_experiment(user: User, archive: Path) -> None:
    imported = user.json("experiment", "import", str(archive))
    experiment = int(imported["experiment"]["id"])
    assert user.experiment(experiment)["state"] == "STATE_COMPLETED"
    trials = user.trials(experiment)
    assert [trial["hparams"] for trial in trials] == [{"lr": 0.1}, {"lr": 0.2}]
    for trial in trials:
        assert [report["metrics"]["validation_metrics"] for report in user.metrics(trial["id"], "validation")] == [
            {"loss": 1.0},
            {"loss": 0.5},
        ]
    assert "trained with 0.2" in user.det("trial", "logs", str(trials[1]["id"]))
    checkpoint = user.json("experiment", "list-checkpoints", str(experiment), "--best", "1")[0]["uuid"]
    user.det("checkpoint", "download", checkpoint, "-o", "copy")
    assert (user.folder / "copy" / "weights").read_text() == "2"
