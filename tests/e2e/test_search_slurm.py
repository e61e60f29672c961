"""Searches on a real Slurm to their ends, while the master is killed again and again."""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.deploy.slurm_dev import Cluster
from dethpc.searcher.methods import build
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of

TRAIN = '''
"""Trains for ever: it ends when it is stopped."""
import json, time
import determined as det

info = det.get_cluster_info()
epoch, work = 0, 0.0
with det.core.init() as core:
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch, work = json.loads((path / "state.json").read_text())
    print(f"starting at epoch {epoch}", flush=True)
    while not core.preempt.should_preempt():
        time.sleep(0.03)
        epoch += 1
        work += 1 - abs(info.trial.hparams["lr"] - 0.5)
        core.train.report_validation_metrics(epoch, {"loss": 1 / (1 + work), "batches": epoch})
    with core.checkpoint.store_path({"steps_completed": epoch}) as (path, uuid):
        (path / "state.json").write_text(json.dumps([epoch, work]))
    print(f"stopped at epoch {epoch}", flush=True)
'''

ROUNDS = '''
"""Its loss depends on its hyperparameters and how long each of them was in force. Trains as long as the search says."""
import json, sys, time, warnings
import determined as det

warnings.simplefilter("ignore")
info = det.get_cluster_info()
epoch, work, trial = 0, 0.0, info.trial.trial_id
with det.core.init() as core:
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch, work, origin = json.loads((path / "state.json").read_text())
        print(f"trial {trial} goes on from trial {origin} with work {work:.9f}", flush=True)
        epoch = epoch if origin == trial else 0  # a copy of another trial counts its own epochs
    print(f"starting at epoch {epoch}", flush=True)
    for op in core.searcher.operations():
        while epoch < op.length:
            time.sleep(0.02)
            epoch += 1
            work += 1 - abs(info.trial.hparams["lr"] - 0.5)
            core.train.report_validation_metrics(epoch, {"loss": 1 / (1 + work)})
            if core.preempt.should_preempt():
                break
        with core.checkpoint.store_path({"steps_completed": epoch}) as (path, uuid):
            (path / "state.json").write_text(json.dumps([epoch, work, trial]))
        if epoch < op.length:
            sys.exit(0)
        print(f"trial {trial} ends {op.length} with work {work:.9f}", flush=True)
        op.report_completed(1 / (1 + work))
'''

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
SEED = {"experiment_seed": 7}


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(slurm, tmp_path) as user:
        yield user


def to_its_end(user: User, experiment: int, kills: int) -> None:
    """Wait for the end, and kill the master so often on the way."""
    rng = random.Random(os.urandom(8))
    while kills or user.experiment(experiment)["state"] not in ("STATE_COMPLETED", "STATE_ERROR"):
        time.sleep(rng.uniform(0.2, 2.0))
        if kills:
            user.kill_master()
            kills -= 1
            user.det("experiment", "list")  # starts another
    assert user.experiment(experiment)["state"] == "STATE_COMPLETED"


def validations(user: User, trial: dict[str, Any]) -> list[tuple[int, float]]:
    return [
        (m["totalBatches"], m["metrics"]["validation_metrics"]["loss"]) for m in user.metrics(trial["id"], "validation")
    ]


@pytest.mark.everything
def test_sixty_trials_of_adaptive_asha_are_judged_and_stopped(user: User) -> None:
    (user.folder / "context" / "train.py").write_text(TRAIN)
    searcher = {
        "name": "adaptive_asha",
        "metric": "loss",
        "time_metric": "batches",
        "max_time": 9,
        "max_trials": 60,
        "divisor": 3,
        "max_rungs": 3,
        "max_concurrent_trials": 12,
    }
    experiment = user.create(searcher=searcher, hyperparameters=SPACE, reproducibility=SEED)
    to_its_end(user, experiment, kills=4)
    trials = user.trials(experiment)
    config = ExperimentConfig.from_json(user.experiment(experiment)["config"])
    drawn = build(config.searcher, config.space, 7)
    assert len(trials) == 60 and {trial["state"] for trial in trials} == {"STATE_COMPLETED"}
    # The same trials as undisturbed, in whatever order they were stopped: trial n has the n-th draw.
    first = {action.index: action.hparams for action in drawn.start()}  # type: ignore[union-attr]
    assert all(trials[index]["hparams"] == hparams for index, hparams in first.items()) and len(first) == 12
    assert len({trial["hparams"]["lr"] for trial in trials}) == 60

    found = user.api("GET", f"/api/v1/experiments/{experiment}/search")
    lengths = [[rung["length"] for rung in bracket["rungs"]] for bracket in found["brackets"]]
    assert lengths == [[1, 3, 9], [3, 9]]
    assert [bracket["created"] for bracket in found["brackets"]] == [bracket["trials"] for bracket in found["brackets"]]
    entered = [[rung["entered"] for rung in bracket["rungs"]] for bracket in found["brackets"]]
    for bracket, counts in zip(found["brackets"], entered, strict=True):
        assert counts[0] == bracket["trials"], "every trial was judged, once"
        assert all(low > high >= 1 for low, high in zip(counts, counts[1:])), "rungs thin out"

    ends: Counter[int] = Counter()
    for trial, place in zip(trials, found["trials"], strict=True):
        log = user.det("trial", "logs", str(trial["id"]))
        assert log.count("starting at epoch") == log.count("starting at epoch 0") == 1, "no trial is trained twice"
        steps = validations(user, trial)
        assert [step for step, _ in steps] == list(range(1, len(steps) + 1)), "no report is lost or doubled"
        assert f"stopped at epoch {len(steps)}" in log
        assert place["value"] == dict(steps)[place["length"]], "it was judged by what it reported there"
        why = "trained to the full length" if place["length"] == 9 else "is worse than the cut-off"
        assert why in place["reason"]
        assert user.api("GET", f"/api/v1/trials/{trial['id']}/checkpoints")["checkpoints"], "it checkpoints first"
        ends[place["length"]] += 1
    assert ends[1] + ends[3] >= 25 and ends[9] >= 2
    assert "cut-off" in user.det("experiment", "describe", str(experiment)).lower()


PBT = {
    "name": "pbt",
    "metric": "loss",
    "population_size": 4,
    "num_rounds": 3,
    "length_per_round": {"batches": 5},
    "replace_function": {"truncate_fraction": 0.25},
    "explore_function": {"resample_probability": 0.0, "perturb_factor": 0.2},
}


def test_a_population_is_the_same_however_often_the_master_is_killed(user: User) -> None:
    (user.folder / "context" / "train.py").write_text(ROUNDS)

    def run(kills: int) -> tuple[int, list[Any]]:
        experiment = user.create(searcher=PBT, hyperparameters=SPACE, reproducibility=SEED)
        to_its_end(user, experiment, kills)
        found = user.api("GET", f"/api/v1/experiments/{experiment}/search")
        first = found["trials"][0]["trialId"]
        shape = [
            (
                trial["hparams"],
                None if place["parentTrialId"] is None else place["parentTrialId"] - first,
                (place["rung"], place["length"], place["value"]),
                place["reason"],
            )
            for trial, place in zip(user.trials(experiment), found["trials"], strict=True)
        ]
        return experiment, shape

    _, undisturbed = run(kills=0)
    experiment, disturbed = run(kills=4)
    assert disturbed == undisturbed and len(disturbed) == 6
    trials = user.trials(experiment)
    first = int(trials[0]["id"])
    for trial, (hparams, parent, _, _) in zip(trials, disturbed, strict=True):
        log = user.det("trial", "logs", str(trial["id"]))
        assert log.count("starting at epoch 0") == 1
        if parent is not None:  # a copy begins with its parent's work, and with altered hyperparameters
            (born,) = re.findall(rf"trial {trial['id']} goes on from trial {first + parent} with work (\S+)", log)
            at_parent = user.det("trial", "logs", str(first + parent))
            assert re.search(rf"trial {first + parent} ends (5|10) with work {born}", at_parent)
            ratio = hparams["lr"] / disturbed[parent][0]["lr"]
            assert min(abs(ratio - 1.2), abs(ratio - 0.8)) < 1e-9 or hparams["lr"] == 1.0
    ends = Counter(length for _, _, (_, length, _), _ in disturbed)
    assert ends == {15: 4, 10: 1, 5: 1}, "the worst of each round ends there, the rest trains on"
