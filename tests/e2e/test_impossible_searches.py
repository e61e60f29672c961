"""What a user is told of a search that cannot be, or will not be what was meant."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import User

LR = {"lr": {"type": "double", "minval": 0, "maxval": 1}}
ASHA = {"name": "adaptive_asha", "metric": "loss", "time_metric": "batches", "max_time": 16, "max_trials": 4}
HALVING = {"name": "sync_halving", "metric": "loss", "num_rungs": 5, "max_length": {"batches": 3}}


def told(user: User, code: int, **changes: Any) -> str:
    user.config(**{"hyperparameters": LR, **changes})
    out = user.det("experiment", "create", "--paused", "config.yaml", "context", code=code)
    assert ("Created experiment" in out) == (code == 0)
    return user.errors


def test_what_cannot_be_is_refused_with_line_and_limit(user: User) -> None:
    said = told(user, 1, searcher={**ASHA, "max_time": 3, "bracket_rungs": [4]})
    assert "searcher.bracket_rungs: must be at most 3, one unit of max_time for each rung, not 4 rungs" in said
    assert "config.yaml:" in said
    said = told(user, 1, searcher={**ASHA, "name": "async_halving", "max_time": 3, "num_rungs": 5})
    assert "searcher.num_rungs: must be at most 3, one unit of" in said
    said = told(user, 1, searcher={"name": "grid", "metric": "loss"})
    assert "hyperparameters.lr.count: required field is missing" in said
    axis = {**LR["lr"], "count": 1000}
    said = told(user, 1, searcher={"name": "grid", "metric": "loss"}, hyperparameters={"a": axis, "b": axis})
    assert "the grid has 1,000,000 points, each a trial; at most 100,000" in said
    said = told(user, 1, resources={"slots_per_trial": 64})
    assert "resources.slots_per_trial: asks for 16 nodes of 4 slots, but pool default has 1 node of that size" in said
    assert "; ask for at most 4 slots" in said
    said = told(user, 1, resources={"slots_per_trial": 4, "max_slots": 2})
    assert "max_slots: 2 is below slots_per_trial (4), so no trial could ever start" in said


def test_what_will_not_be_as_meant_is_told_and_done(user: User) -> None:
    said = told(user, 0, searcher={**ASHA, "max_trials": 2, "bracket_rungs": [3, 2, 1]})
    assert "warning: searcher: there are 3 brackets and 2 trials; the last 1 brackets get none" in said
    said = told(user, 0, searcher={**ASHA, "max_time": 3, "max_rungs": 5})
    assert "no trial is stopped early, as in a random search" in said
    said = told(user, 0, searcher={**HALVING, "budget": {"batches": 100}})
    assert "warning: searcher.num_rungs: a length of 3 divided by 4" in said


def test_a_metric_that_is_never_reported_is_told_of_each_trial(user: User) -> None:
    user.write(
        "context/train.py",
        """\
        import determined as det
        with det.core.init() as core:
            for step in range(1, 17):
                core.train.report_validation_metrics(step, {"los": 1.0, "batches": step})
        """,
    )
    experiment = user.create(searcher={**ASHA, "max_trials": 2}, hyperparameters=LR)
    reason = "finished without reporting loss, the searcher's metric, as a number"
    assert reason in user.det("experiment", "wait", str(experiment))
    assert user.det("experiment", "describe", str(experiment)).count(reason) == 2
