"""Experiments written for older releases, from their configuration to the end of their search."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User, make_user, take_down

OPERATIONS = '''
"""Trains as long as the search says, and validates when it is asked to."""
import json, sys, time, warnings
import determined as det

warnings.simplefilter("ignore")
info = det.get_cluster_info()
lr, epoch = info.trial.hparams["lr"], 0
with det.core.init() as core:
    if info.latest_checkpoint is not None and info.trial._steps_completed:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch = json.loads((path / "state.json").read_text())["epoch"]
    unit = core.searcher.get_configured_units()
    print(f"unit {unit.name if unit else None}", flush=True)
    for op in core.searcher.operations():
        while epoch < op.length:
            time.sleep(0.01)
            epoch += 1
            if core.preempt.should_preempt():
                break
            op.report_progress(epoch)
        with core.checkpoint.store_path({"steps_completed": epoch}) as (path, uuid):
            (path / "state.json").write_text(json.dumps({"epoch": epoch}))
        if epoch < op.length:
            sys.exit(0)
        print(f"trial {info.trial.trial_id} completed {op.length}", flush=True)
        op.report_completed(abs(lr - 0.01))
'''

LR = {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}}


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    (user.folder / "context" / "train.py").write_text(OPERATIONS)
    yield user
    take_down(user)


def completed(user: User, experiment: int) -> dict[int, list[int]]:
    """The operations that each trial completed, in order."""
    found: dict[int, list[int]] = {}
    for trial in user.trials(experiment):
        log = user.det("trial", "logs", str(trial["id"]))
        found[trial["id"]] = [int(n) for n in re.findall(rf"trial {trial['id']} completed (\d+)", log)]
    return found


def search(user: User, searcher: dict[str, Any], **more: Any) -> tuple[int, dict[int, list[int]]]:
    space = {"lr": 0.1} if searcher["name"] == "single" else LR
    experiment = user.create(searcher={"metric": "loss", **searcher}, hyperparameters=space, **more)
    user.det("experiment", "wait", str(experiment))
    return experiment, completed(user, experiment)


@pytest.mark.parametrize(
    ("searcher", "length", "unit"),
    [
        ({"name": "single", "max_steps": 1}, 3, "BATCHES"),
        ({"name": "single", "max_length": {"epochs": 4}}, 4, "EPOCHS"),
        ({"name": "random", "max_trials": 1, "max_length": 5}, 5, "None"),
    ],
)
def test_one_operation_has_the_length_of_the_configuration(
    user: User, searcher: dict[str, Any], length: int, unit: str
) -> None:
    more = {"batches_per_step": 3} if "max_steps" in searcher else {}
    experiment, found = search(user, searcher, **more)
    assert list(found.values()) == [[length]]
    assert f"unit {unit}" in user.log(experiment)


def test_trials_that_validate_only_when_asked_are_compared_at_each_rung(user: User) -> None:
    searcher = {"name": "adaptive_asha", "max_trials": 8, "max_length": {"epochs": 16}, "mode": "aggressive"}
    _, found = search(user, {**searcher, "max_concurrent_trials": 4, "max_rungs": 2, "divisor": 4})
    assert len(found) == 8
    ops = Counter(tuple(lengths) for lengths in found.values())
    assert set(ops) <= {(4,), (4, 16)} and ops[(4,)] >= 1 and ops[(4, 16)] >= 1


def test_a_promoted_trial_goes_on_from_its_checkpoint_to_its_larger_target(user: User) -> None:
    searcher = {"name": "adaptive_simple", "max_trials": 4, "max_length": {"batches": 8}, "max_rungs": 2, "divisor": 4}
    _, found = search(user, {**searcher, "mode": "aggressive"})
    assert sorted(found.values()) == [[2], [2], [2], [2, 8]]


def test_a_population_of_the_steps_generation_trains_its_rounds(user: User) -> None:
    pbt = {
        "name": "pbt",
        "population_size": 4,
        "num_rounds": 2,
        "steps_per_round": 1,
        "replace_function": {"truncate_fraction": 0.25},
        "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.1},
    }
    _, found = search(user, pbt, batches_per_step=5)
    assert Counter(map(tuple, found.values())) == {(5,): 2, (5, 10): 3}


def test_a_population_whose_trials_save_nothing_says_that_copies_begin_with_new_weights(user: User) -> None:
    user.write(
        "context/train.py",
        """
        import time
        import determined as det

        with det.core.init() as core:
            for op in core.searcher.operations():
                core.train.report_validation_metrics(op.length, {"loss": det.get_cluster_info().trial.hparams["lr"]})
                op.report_completed(det.get_cluster_info().trial.hparams["lr"])
        """,
    )
    pbt = {
        "name": "pbt",
        "metric": "loss",
        "population_size": 2,
        "num_rounds": 2,
        "length_per_round": {"batches": 3},
        "replace_function": {"truncate_fraction": 0.5},
        "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.1},
    }
    experiment = user.create(searcher=pbt, hyperparameters=LR)
    user.det("experiment", "wait", str(experiment))
    first, second, copy = user.trials(experiment)
    words = "begins with new weights: the trial that it copies left no checkpoint"
    assert words in user.det("trial", "logs", str(copy["id"]))
    assert all(words not in user.det("trial", "logs", str(trial["id"])) for trial in (first, second))
