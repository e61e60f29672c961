"""Experiments of the shape in which they were published for Determined, run as they are: nothing in these folders knows of us."""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User
from tests.published.conftest import RARE
from tests.waiting import LONG_ENOUGH

MISSING = [
    name
    for name in ("torch", "keras", "transformers", "lightning", "deepspeed")
    if importlib.util.find_spec(name) is None
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

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

# Each of the others with one trial: its steps, what it validates, and a file of its last checkpoint.
FRAMEWORKS = {
    "batch_inference/distributed": (5, "seen", "metadata.json"),
    "core_search/const": (40, "validation_loss", "state.txt"),
    "deepspeed_core/const": (6, "loss", "latest"),
    "deepspeed_gan/const": (8, "d_loss", "model1/mp_rank_00_model_states.pt"),
    "fashion_mnist_keras/const": (24, "accuracy", "model_checkpoint.weights.h5"),
    "hf_image_classification/const": (12, "eval_loss", "checkpoint-12/model.safetensors"),
    "hf_language_modeling/const": (16, "eval_loss", "checkpoint-16/model.safetensors"),
    "imagenet_core/distributed": (3, "acc1", "checkpoint.pth.tar"),
    "lightning_core/const": (12, "val_loss", "model.ckpt"),
}

# Each search: the number of its trials, and the steps of the longest.
SEARCHES = {
    "core_search/adaptive": (4, 40),
    "core_search/dist_random": (2, 40),
    "core_search/grid": (4, 20),
    "mnist_trial/adaptive": (2, 16),
}


def sample(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.everything) if name in RARE else name for name in names]


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


def test_every_experiment_here_is_asked_for() -> None:
    stages = {f"increment/{path.stem}" for path in HERE.glob("increment/*.py")}
    there = {f"{path.parent.name}/{path.stem}" for path in HERE.glob("*/*.yaml")}
    assert there == {*SINGLE, *FRAMEWORKS, *SEARCHES, *stages} and there > RARE


def test_a_script_that_knows_of_no_cluster(created: Created) -> None:
    user, (trial,) = finished(created, "increment/0_start")
    assert "x is now 20" in user.det("trial", "logs", str(trial["id"]))


def test_metrics_are_reported(created: Created) -> None:
    user, (trial,) = finished(created, "increment/1_metrics")
    assert values(user, trial, "training", "x") == [5, 10, 15, 20]
    assert values(user, trial, "validation", "x") == [20]


@pytest.mark.everything
def test_a_pause_goes_on_and_another_trial_takes_over_the_weight_alone(created: Created) -> None:
    user, numbers = created
    paused = int(
        user.det("experiment", "create", str(HERE / "increment/2_checkpoints.yaml"), str(HERE / "increment")).split()[
            -1
        ]
    )
    told = user.errors
    user.wait_steps(paused, 10)
    user.api(
        "POST", f"/api/v1/experiments/{paused}/pause"
    )  # a command's start may take as long as what is left to train
    user.wait_state(paused, "PAUSED")
    user.det("experiment", "activate", str(paused))
    user.det("experiment", "wait", str(paused))
    assert values(user, user.trials(paused)[0], "validation", "x") == [60]
    assert "going on from batch" in user.log(paused)
    # What is only for containers is told once; a mount of a path to itself is true, but for read_only.
    assert told.count("bind_mounts") == 1 and "bind_mounts.0.read_only has no effect" in told
    assert told.count("without a container") == 1 and "a pool without containers" in told

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


@pytest.mark.parametrize("name", sample(SINGLE))
def test_mnist_is_learned(created: Created, name: str) -> None:
    user, (trial,) = finished(created, name)
    assert trial["totalBatchesProcessed"] == SINGLE[name]
    assert trial["latestValidation"]["totalBatches"] == SINGLE[name]
    assert trial["latestValidation"]["metrics"]["avgMetrics"]["accuracy"] > 0.5


@pytest.mark.parametrize("name", sample(FRAMEWORKS))
def test_a_framework_trains_validates_and_saves(created: Created, name: str) -> None:
    user, (trial,) = finished(created, name)
    steps, metric, file = FRAMEWORKS[name]
    validation = trial["latestValidation"]
    assert (trial["totalBatchesProcessed"], validation["totalBatches"], trial["restarts"]) == (steps, steps, 0)
    assert math.isfinite(validation["metrics"]["avgMetrics"][metric])
    saved = user.api("GET", f"/api/v1/trials/{trial['id']}/checkpoints?sortByAttr=SORT_BY_END_TIME")["checkpoints"]
    assert file in saved[-1]["resources"], sorted(saved[-1]["resources"])


@pytest.mark.parametrize("name", sample(SEARCHES))
def test_a_search_of_each_kind_ends(created: Created, name: str) -> None:
    _, trials = finished(created, name)
    assert (len(trials), max(trial["totalBatchesProcessed"] for trial in trials)) == SEARCHES[name]


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


def program(user: User, folder: Path, *words: str) -> str:
    """What a program says that knows of the master and runs outside of it."""
    env = {**user.env, "DET_MASTER": user.master()["url"], "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=LONG_ENOUGH, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def named(user: User, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The only experiment of that name, with its trials."""
    (experiment,) = [e for e in user.json("experiment", "list", "--all") if e["name"] == name]
    return experiment, user.trials(experiment["id"])


def test_a_search_method_of_ones_own_searches(created: Created, tmp_path: Path) -> None:
    user, _ = created
    program(
        user,
        tmp_path,
        str(HERE / "custom_search/run_experiment.py"),
        str(HERE / "core_search/const.yaml"),
        str(HERE / "core_search"),
    )
    experiment, trials = named(user, "custom_search")
    assert experiment["state"] == "STATE_COMPLETED" and experiment["progress"] == 1.0
    assert [trial["totalBatchesProcessed"] for trial in trials] == [20, 40]


def test_an_unmanaged_script_reports_to_the_master(created: Created, tmp_path: Path) -> None:
    user, _ = created
    program(user, tmp_path, str(HERE / "unmanaged/singleton.py"))
    experiment, (trial,) = named(user, "unmanaged-singleton")
    assert values(user, trial, "training", "loss") == [2 * i for i in range(10)]
    assert experiment["state"] == "STATE_COMPLETED"


def test_an_unmanaged_script_goes_on_from_its_checkpoint(created: Created, tmp_path: Path) -> None:
    user, _ = created
    said = [program(user, tmp_path, str(HERE / "unmanaged/checkpoints.py"), last) for last in ("7", "10")]
    assert ["Last checkpoint iteration: 0" in said[0], "Last checkpoint iteration: 5" in said[1]] == [True, True]
    _, (trial,) = named(user, "unmanaged-checkpoints")
    assert len(values(user, trial, "training", "loss")) == 10


def test_unmanaged_workers_report_as_one_trial(created: Created, tmp_path: Path) -> None:
    user, _ = created
    program(
        user,
        tmp_path,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "--standalone",
        str(HERE / "unmanaged/distributed.py"),
    )
    _, (trial,) = named(user, "unmanaged-distributed")
    assert set(values(user, trial, "training", "loss")) == {1.0 + i for i in range(10)}
    saved = user.api("GET", f"/api/v1/trials/{trial['id']}/checkpoints")["checkpoints"]
    assert {"state_0", "state_1"} <= saved[-1]["resources"].keys()


def test_autotuning_is_refused_and_its_calls_do_no_harm(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "determined.pytorch.dsat", "asha", "deepspeed.yaml", "."]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HERE.parents[1]), "HOME": str(tmp_path)}
    done = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONG_ENOUGH, check=False
    )
    assert done.returncode == 1 and "DeepSpeed Autotune is not supported" in done.stderr


def test_a_lightning_adapter_says_what_to_use_instead() -> None:
    from determined.pytorch.lightning import LightningAdapter

    with pytest.raises(NotImplementedError, match="determined.lightning.DeterminedCallback"):

        class Mine(LightningAdapter):
            pass
