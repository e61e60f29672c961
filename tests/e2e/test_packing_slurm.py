"""Trials shorter than a site likes its jobs to be share them, and nothing else changes for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User
from tests.e2e.test_slurm import jobs, outcome, slurm_command, user_of
from tests.waiting import wait_until

SEARCH = {
    "searcher": {"name": "random", "metric": "validation_loss", "max_trials": 6, "max_concurrent_trials": 2},
    "hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}, "steps": 10, "pause": 0.02},
}


@pytest.fixture
def packing(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The pool ``short`` likes its jobs to last an hour; ``plain`` does not mind."""
    pools = {"short": {"partition": "main", "min_job_time": "1:00:00"}, "plain": {"partition": "main"}}
    with user_of(slurm, tmp_path, pools=pools) as user:
        yield user


@pytest.mark.everything
def test_short_trials_share_jobs_and_give_the_same_results(packing: User) -> None:
    user = packing
    plain = user.create(resources={"resource_pool": "plain"}, **SEARCH)
    short = user.create(resources={"resource_pool": "short"}, **SEARCH)
    for number in (plain, short):
        user.det("experiment", "wait", str(number))
    assert outcome(user, short) == outcome(user, plain)
    assert len(_jobs_of(user, plain)) == 6
    assert len(_jobs_of(user, short)) == 2, "as many as may run at once"
    for trial in user.trials(short):
        assert user.det("trial", "logs", str(trial["id"])).count("starting at step 0") == 1
    wait_until(lambda: not jobs(user))


def test_a_requeue_and_a_killed_master_lose_no_run_of_a_shared_job(packing: User) -> None:
    user = packing
    slow = {**SEARCH, "hyperparameters": {**SEARCH["hyperparameters"], "pause": 0.1}}  # type: ignore[dict-item]
    whole = user.create(resources={"resource_pool": "plain"}, **slow)
    number = user.create(resources={"resource_pool": "short"}, **slow)
    wait_until(lambda: len([t for t in user.trials(number) if t["state"].endswith("COMPLETED")]) >= 2)
    wait_until(lambda: len(_live(user, number)) == 2)
    job = _live(user, number)[0]
    slurm_command(user, "scontrol", "requeue", job)
    user.kill_master()
    for experiment in (whole, number):
        user.det("experiment", "wait", str(experiment))
    assert outcome(user, number) == outcome(user, whole)
    assert len(_jobs_of(user, number)) < 6
    wait_until(lambda: not jobs(user))


def _runs(user: User, experiment: int) -> list[Path]:
    return [path for path in (user.home / "runs").iterdir() if path.name.startswith(f"{experiment}.")]


def _jobs_of(user: User, experiment: int) -> set[str]:
    from dethpc.rundir.claim import claimed_by
    from dethpc.rundir.layout import RunDir

    return {job for path in _runs(user, experiment) if (job := claimed_by(RunDir(path))) is not None}


def _live(user: User, experiment: int) -> list[str]:
    running = slurm_command(user, "squeue", "--me", "--noheader", "--states=RUNNING", "--format=%i").split()
    return [job for job in running if job in _jobs_of(user, experiment)]
