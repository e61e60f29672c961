"""A trial class, which says no length of its own, under the searches that let trials wait and continue."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import LONG_ENOUGH

pytest.importorskip("torch")

TRIAL = """
import torch
from determined.pytorch import DataLoader, PyTorchTrial

class Line(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), context.get_hparam("lr")))

    def build_training_data_loader(self):
        return DataLoader([torch.ones(1)] * 8, batch_size=2)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.model(batch).pow(2).mean()}
"""

HPARAMS = {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}, "global_batch_size": 2}

PBT = {
    "name": "pbt",
    "population_size": 2,
    "num_rounds": 2,
    "replace_function": {"truncate_fraction": 0.5},
    "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.1},
}

SEARCH = """
import uuid
from determined import searcher

class One(searcher.SearchMethod):
    def initial_operations(self, state):
        request = uuid.uuid4()
        return [searcher.Create(request, {"lr": 0.1, "global_batch_size": 2}), searcher.ValidateAfter(request, 3)]

    def on_validation_completed(self, state, request_id, metric, train_length):
        return [searcher.ValidateAfter(request_id, 5) if train_length == 3 else searcher.Close(request_id)]

    def on_trial_closed(self, state, request_id):
        return [searcher.Shutdown()]

searcher.LocalSearchRunner(One(), "kept").run(CONFIG, "context")
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="2")
    (user.folder / "context" / "model_def.py").write_text(TRIAL)
    yield user
    take_down(user)


def validated(user: User, experiment: int) -> Counter[tuple[int, ...]]:
    """At how many batches each trial was validated, counted by trials."""
    assert user.experiment(experiment)["state"] == "STATE_COMPLETED", user.log(experiment)
    return Counter(
        tuple(report["totalBatches"] for report in user.metrics(trial["id"], "validation"))
        for trial in user.trials(experiment)
    )


@pytest.mark.parametrize(
    ("searcher", "lengths"),
    [
        pytest.param({**PBT, "length_per_round": {"batches": 3}}, {(3,): 2, (3, 6): 1}, marks=pytest.mark.everything),
        pytest.param({**PBT, "length_per_round": {"epochs": 1}}, {(4,): 2, (4, 8): 1}, marks=pytest.mark.everything),
        pytest.param({**PBT, "length_per_round": {"records": 6}}, {(3,): 2, (3, 6): 1}, marks=pytest.mark.everything),
        (
            {"name": "adaptive_simple", "max_trials": 4, "max_length": {"batches": 8}, "max_rungs": 2, "divisor": 4,
             "mode": "aggressive"},
            {(2,): 3, (2, 8): 1},
        ),
    ],
)  # fmt: skip
def test_a_trial_class_trains_to_the_lengths_of_its_search(
    user: User, searcher: dict[str, Any], lengths: dict[tuple[int, ...], int]
) -> None:
    experiment = user.create(
        entrypoint="model_def:Line",
        searcher={"metric": "loss", **searcher},
        hyperparameters=HPARAMS,
        resources={"slots_per_trial": 1},
    )
    user.det("experiment", "wait", str(experiment))
    assert validated(user, experiment) == lengths


@pytest.mark.parametrize("unit", [{"unit": "batches"}, pytest.param({}, marks=pytest.mark.everything)])
def test_a_trial_class_trains_as_far_as_a_custom_search_wants(user: User, unit: dict[str, str]) -> None:
    config = {
        "entrypoint": "model_def:Line",
        "searcher": {"name": "custom", "metric": "loss", **unit},
        "hyperparameters": {},
        "max_restarts": 0,
    }
    user.det("experiment", "list")  # a master
    done = subprocess.run(
        [sys.executable, "-c", SEARCH.replace("CONFIG", repr(config))],
        cwd=user.folder, env=user.env, capture_output=True, text=True, timeout=LONG_ENOUGH, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert validated(user, 1) == {(3, 5): 1}


def test_a_trial_that_its_search_stops_stops_at_the_state_that_was_validated(user: User) -> None:
    searcher = {
        "name": "adaptive_asha",
        "metric": "loss",
        "max_trials": 6,
        "time_metric": "batches",
        "max_time": 64,
        "max_rungs": 3,
        "mode": "aggressive",
    }
    experiment = user.create(
        entrypoint="model_def:Line",
        searcher=searcher,
        hyperparameters=HPARAMS,
        min_validation_period={"batches": 4},
        resources={"slots_per_trial": 1},
    )
    user.det("experiment", "wait", str(experiment))
    trials = user.trials(experiment)
    assert {trial["state"] for trial in trials} == {"STATE_COMPLETED"}
    stopped = [trial for trial in trials if trial["totalBatchesProcessed"] < 64]
    assert stopped
    for trial in stopped:
        last = user.json("trial", "describe", str(trial["id"]))["trial"]["latestValidation"]["totalBatches"]
        assert trial["totalBatchesProcessed"] == last
    for checkpoint in user.json("experiment", "list-checkpoints", str(experiment)):
        assert checkpoint["training"]["validationMetrics"]["avgMetrics"], checkpoint["metadata"]
