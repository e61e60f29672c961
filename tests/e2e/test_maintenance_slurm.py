"""What a site does before and during maintenance keeps trials waiting, and ends none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of
from tests.waiting import LONG_ENOUGH, wait_until

SEARCH = {
    "searcher": {"name": "random", "metric": "validation_loss", "max_trials": 12, "max_concurrent_trials": 12},
    "hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}, "steps": 4},
}


@pytest.fixture
def cluster(slurm_private: Callable[..., Cluster]) -> Cluster:
    return slurm_private(nodes=1)


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(cluster, tmp_path) as user:
        yield user


def test_a_partition_that_is_drained_in_the_middle_of_a_search_ends_no_trial(user: User, cluster: Cluster) -> None:
    experiment = user.create(**SEARCH)
    wait_until(lambda: any(t["state"] == "STATE_COMPLETED" for t in user.trials(experiment)))
    cluster.run("scontrol", "update", "partitionname=main", "state=DRAIN")
    other = user.create(hyperparameters={"lr": 0.1, "steps": 2})
    said = "Its job cannot be submitted at present: "
    wait_until(lambda: said in user.det("experiment", "describe", str(other)))
    assert "Required partition not available (inactive or drain)" in user.det("experiment", "describe", str(other))
    wait_until(lambda: f"Waiting: {said}" in user.log(other))
    cluster.run("scontrol", "update", "partitionname=main", "state=INACTIVE")
    wait_until(lambda: said in user.det("experiment", "describe", str(other)))
    cluster.run("scontrol", "update", "partitionname=main", "state=UP")
    for each in (experiment, other):
        user.det("experiment", "wait", str(each), timeout=LONG_ENOUGH)
    assert {trial["state"] for trial in user.trials(experiment)} == {"STATE_COMPLETED"}
    assert len(user.trials(experiment)) == 12
    for trial in user.trials(experiment):
        assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == [1, 2, 3, 4]
