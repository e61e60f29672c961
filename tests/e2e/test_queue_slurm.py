"""The queue on a real Slurm, for a plain user: order, shares and limits hold for jobs that already wait there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User, wait_until
from tests.e2e.test_slurm import slurm_command, user_of

SEARCH = {"name": "random", "metric": "loss", "max_trials": 1, "max_concurrent_trials": 1}


def create(user: User, trials: int = 1, seconds: float = 3, **resources: Any) -> int:
    searcher = {**SEARCH, "max_trials": trials, "max_concurrent_trials": trials}
    return user.create(entrypoint=f"sleep {seconds}", searcher=searcher, resources={"slots_per_trial": 1, **resources})


def job_of(user: User, experiment_id: int) -> str:
    return str(user.experiment(experiment_id)["jobId"])


def by_priority(user: User) -> list[int]:
    """Experiments whose jobs wait in Slurm, in the order in which Slurm will start them."""
    out = slurm_command(user, "squeue", "--me", "--noheader", "--states=PENDING", "--Format=PriorityLong:20,Name:60")
    waiting = sorted(((int(priority), name) for priority, name in map(str.split, out.splitlines())), reverse=True)
    return [int(name.split("-")[-1].split(".")[0]) for _, name in waiting if name.startswith("det-")]


@contextmanager
def held(user: User, nodes: int) -> Iterator[None]:
    """Somebody else's job has all GPUs of so many nodes."""
    job = slurm_command(
        user, "sbatch", "--parsable", f"--nodes={nodes}", "--gres=gpu:4", "--output=/dev/null", "--wrap=sleep 3600"
    ).strip()
    try:
        wait_until(lambda: "RUNNING" in slurm_command(user, "squeue", "--noheader", f"--jobs={job}", "--format=%T"))
        yield
    finally:
        slurm_command(user, "scancel", job)


def when(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(slurm, tmp_path, pools={"main": {"partition": "main"}, "shared": SHARED}) as user:
        yield user


SHARED = {"partition": "main", "scheduler": "fair_share"}


def test_order_holds_for_jobs_that_already_wait_in_slurm(on_slurm: User) -> None:
    user = on_slurm
    with held(user, nodes=3):
        with held(user, nodes=1):
            first, second = create(user, slots_per_trial=4), create(user, slots_per_trial=4)
            urgent = create(user, slots_per_trial=4, priority=7)
            wait_until(lambda: sorted(by_priority(user)) == [first, second, urgent])
            wait_until(lambda: by_priority(user) == [urgent, first, second])
            user.det("job", "update", job_of(user, second)[:8], "--ahead-of", job_of(user, first)[:8])
            wait_until(lambda: by_priority(user) == [urgent, second, first])
            table = user.det("job", "list", "-p", "main").splitlines()
            ids = [line.split("|")[1].strip() for line in table[2:]]
            assert ids == [job_of(user, id)[:8] for id in (urgent, second, first)]
        for id in (first, second, urgent):
            user.wait_state(id, "COMPLETED")
        starts = {when(user.trials(id)[0]["startTime"]): id for id in (first, second, urgent)}
        assert [id for _, id in sorted(starts.items())] == [urgent, second, first]


def test_experiments_share_by_weight_and_max_slots_outlives_the_master(on_slurm: User) -> None:
    user, limit = on_slurm, 3
    with held(user, nodes=2):
        with held(user, nodes=2):  # nobody has a start over the other
            one = create(user, 200, resource_pool="shared", weight=1)
            three = create(user, 200, resource_pool="shared", weight=3)
        wait_until(lambda: _ended(user, one) + _ended(user, three) >= 72, timeout=300)
        now = time.time()
        shares = [_slot_seconds(user, id, now) for id in (one, three)]
        for id in (one, three):
            user.det("experiment", "kill", str(id))
        assert shares[1] / shares[0] == pytest.approx(3, rel=0.1), shares
        capped = create(user, 12, 2, resource_pool="main", max_slots=limit)
        kills = most = 0
        while user.experiment(capped)["state"] not in ("STATE_COMPLETED", "STATE_ERROR"):
            most = max(most, _at_once(user, capped))
            if kills < 2 and _ended(user, capped) >= 3 * (kills + 1):
                user.kill_master()
                user.det("experiment", "list")
                kills += 1
        assert (kills, most) == (2, limit)
        assert user.experiment(capped)["state"] == "STATE_COMPLETED"


def _ended(user: User, experiment_id: int) -> int:
    return sum(trial["state"] == "STATE_COMPLETED" for trial in user.trials(experiment_id))


def _at_once(user: User, experiment_id: int) -> int:
    """Jobs of the experiment that wait or run; one that has written its last report does neither."""
    out = slurm_command(user, "squeue", "--me", "--noheader", "--states=PENDING,RUNNING", "--format=%j")
    runs = [name.split("-")[-1] for name in out.split() if f"-{experiment_id}." in name]
    return sum(not (user.home / "runs" / run / "attempts" / "0" / "end.json").exists() for run in runs)


def _slot_seconds(user: User, experiment_id: int, now: float) -> float:
    total = 0.0
    for started in user.home.glob(f"runs/{experiment_id}.*/attempts/0/started.json"):
        end = started.with_name("end.json")
        begin = json.loads(started.read_text())["at"]
        total += (min(now, json.loads(end.read_text())["at"]) if end.exists() else now) - begin
    return total
