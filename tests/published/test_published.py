"""Experiments of the shape in which they were published for Determined, run as they are: nothing in these folders knows of us."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User
from tests.waiting import LONG_ENOUGH

pytest.importorskip("torch")

Created = tuple[User, dict[str, int]]
HERE = Path(__file__).parent

# Each configuration with the number of its trials, the steps of the longest and what it validated.
SINGLE = {
    "mnist_trainer/const": 10,
    "mnist_trainer/distributed": 10,
    "mnist_trial/const": 20,
    "mnist_trial/distributed": 20,
    "mnist_trial/nested_launcher": 20,
    "mnist_trial/nested_object": 10,
}


def finished(created: Created, name: str) -> tuple[User, list[dict[str, Any]]]:
    """The trials of an experiment, when it has ended well."""
    user, numbers = created
    user.det("experiment", "wait", str(numbers[name]), code=None)
    log = user.log(numbers[name])
    trials = user.trials(numbers[name])
    assert user.experiment(numbers[name])["state"] == "STATE_COMPLETED", log[-3000:]
    return user, trials


def values(user: User, trial: dict[str, Any], group: str, metric: str) -> list[float]:
    name = "validation_metrics" if group == "validation" else "avg_metrics"
    return [report["metrics"][name][metric] for report in user.metrics(trial["id"], group)]


def test_every_experiment_here_is_asked_for(created: Created) -> None:
    stages = {f"increment/{path.stem}" for path in HERE.glob("increment/*.py")}
    assert set(created[1]) == {*SINGLE, *stages, "mnist_trial/adaptive"}


def test_a_script_that_knows_of_no_cluster(created: Created) -> None:
    user, (trial,) = finished(created, "increment/0_start")
    assert "x is now 20" in user.det("trial", "logs", str(trial["id"]))


def test_metrics_are_reported(created: Created) -> None:
    user, (trial,) = finished(created, "increment/1_metrics")
    assert values(user, trial, "training", "x") == [5, 10, 15, 20]
    assert values(user, trial, "validation", "x") == [20]


def test_a_pause_goes_on_and_another_trial_takes_over_the_weight_alone(created: Created) -> None:
    user, numbers = created
    paused = int(
        user.det("experiment", "create", str(HERE / "increment/2_checkpoints.yaml"), str(HERE / "increment")).split()[
            -1
        ]
    )
    told = user.errors
    user.wait_steps(paused, 10)
    user.det("experiment", "pause", str(paused))
    user.wait_state(paused, "PAUSED")
    user.det("experiment", "activate", str(paused))
    user.det("experiment", "wait", str(paused))
    assert values(user, user.trials(paused)[0], "validation", "x") == [60]
    assert "going on from batch" in user.log(paused)
    # What is only for containers is told once; a mount of a path to itself is true.
    assert told.count("without a container") == 1 and "bind_mounts" not in told

    _, (source,) = finished(created, "increment/2_checkpoints")
    override = f"searcher.source_trial_id={source['id']}"
    config = str(HERE / "increment/2_checkpoints.yaml")
    out = user.det("experiment", "create", "--config", override, config, str(HERE / "increment"))
    continued = int(out.split()[-1])
    user.det("experiment", "wait", str(continued))
    assert values(user, user.trials(continued)[0], "validation", "x") == [120]


def test_a_search_stops_trials_early(created: Created) -> None:
    user, trials = finished(created, "increment/3_hpsearch")
    assert len(trials) == 4
    assert max(trial["totalBatchesProcessed"] for trial in trials) == 100


def test_a_script_that_starts_its_workers_itself(created: Created) -> None:
    user, (trial,) = finished(created, "increment/4_distributed")
    assert values(user, trial, "validation", "x") == [120, 240]


@pytest.mark.parametrize("name", SINGLE)
def test_mnist_is_learned(created: Created, name: str) -> None:
    user, (trial,) = finished(created, name)
    assert trial["totalBatchesProcessed"] == SINGLE[name]
    assert trial["latestValidation"]["totalBatches"] == SINGLE[name]
    assert trial["latestValidation"]["metrics"]["avgMetrics"]["accuracy"] > 0.5


def test_mnist_is_searched(created: Created) -> None:
    user, trials = finished(created, "mnist_trial/adaptive")
    assert len(trials) == 2
    assert max(trial["totalBatchesProcessed"] for trial in trials) == 16


def test_the_same_training_script_runs_by_itself(tmp_path: Path) -> None:
    shutil.copytree(HERE / "mnist_trainer", tmp_path / "there")
    done = subprocess.run(
        [sys.executable, "train.py", "--batches", "3"],
        cwd=tmp_path / "there",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_unmanaged_script_reports_to_the_master(created: Created, tmp_path: Path) -> None:
    user, _ = created
    url = user.master()["url"]
    done = subprocess.run(
        [sys.executable, str(HERE / "unmanaged/singleton.py")],
        cwd=tmp_path,
        env={**user.env, "DET_MASTER": url},
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (experiment,) = [e for e in user.json("experiment", "list", "--all") if e["name"] == "unmanaged-singleton"]
    (trial,) = user.trials(experiment["id"])
    assert values(user, trial, "training", "loss") == [2 * i for i in range(10)]
    assert experiment["state"] == "STATE_COMPLETED"
