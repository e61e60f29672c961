"""The queue on a real Slurm, for a plain user: order, shares and limits hold for jobs that already wait there."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User, wait_until
from tests.e2e.test_slurm import slurm_command, user_of

PATIENCE = 600
"""Seconds in which even a machine that is ten times as busy gets there."""

SLOTS = 8
"""That the experiments which share have, all together."""

SEARCH = {"name": "random", "metric": "loss", "max_trials": 1, "max_concurrent_trials": 1}


def create(user: User, trials: int = 1, seconds: float = 3, **resources: Any) -> int:
    searcher = {**SEARCH, "max_trials": trials, "max_concurrent_trials": trials}
    return user.create(entrypoint=f"sleep {seconds}", searcher=searcher, resources={"slots_per_trial": 1, **resources})


def job_of(user: User, experiment_id: int) -> str:
    return str(user.experiment(experiment_id)["jobId"])


def waiting(user: User) -> list[int]:
    """Experiments whose jobs wait in Slurm, held ones aside, in the order in which Slurm will start them: of equals the oldest."""
    fields = "--Format=PriorityLong:20,JobID:20,Name:60"
    out = slurm_command(user, "squeue", "--me", "--noheader", "--states=PENDING", fields)
    rows = [(-int(priority), int(job), name) for priority, job, name in map(str.split, out.splitlines())]
    return [_experiment(name) for priority, _, name in sorted(rows) if name[:1].isdigit() and priority]


def _experiment(name: str) -> int:
    return int(name.partition(".")[0])


def job_in_slurm(user: User, experiment_id: int) -> tuple[str, str]:
    """The id of the experiment's only job there, and why it waits."""
    out = slurm_command(user, "squeue", "--me", "--noheader", "--states=PENDING", "--Format=JobID:20,Name:60,Reason:40")
    (found,) = [row.split() for row in out.splitlines() if f" {experiment_id}." in row]
    return found[0], found[2]


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
def on_slurm(slurm_of_both_priorities: Cluster, tmp_path: Path) -> Iterator[User]:
    pools = {"main": {"partition": "main"}, "shared": {"partition": "main", "scheduler": "fair_share"}}
    with user_of(slurm_of_both_priorities, tmp_path, pools=pools) as user:
        yield user


def test_order_holds_for_jobs_that_already_wait_in_slurm(on_slurm: User) -> None:
    user = on_slurm
    with held(user, nodes=3):
        with held(user, nodes=1):
            first, second = create(user, slots_per_trial=4), create(user, slots_per_trial=4)
            urgent = create(user, slots_per_trial=4, priority=7)
            wait_until(lambda: waiting(user) == [urgent, first, second], PATIENCE)
            job = slurm_command(user, "squeue", "--me", "--noheader", "--format=%i %j %k", "--states=PENDING")
            (shown,) = [line.split(" ", 2) for line in job.splitlines() if f" {urgent}." in line]
            (trial,) = user.trials(urgent)
            run = f"{urgent}.{trial['id']}.1"
            assert shown[1].startswith(f"{run}_") and f"trial {trial['id']}, run {run} of dethpc" in shown[2]
            assert f"Run: {user.home / 'runs' / run}" in " ".join(user.det("slurm", shown[0]).split())
            user.det("job", "update", str(second), "--ahead-of", job_of(user, first)[:8])
            wait_until(lambda: waiting(user) == [urgent, second, first], PATIENCE)
            _, *rows = user.det("job", "list", "-p", "main", "--columns", "id").splitlines()
            assert rows == [job_of(user, id)[:8] for id in (urgent, second, first)]
        for id in (first, second, urgent):
            user.wait_state(id, "COMPLETED", timeout=PATIENCE)
        starts = {when(user.trials(id)[0]["startTime"]): id for id in (first, second, urgent)}
        assert [id for _, id in sorted(starts.items())] == [urgent, second, first]


def test_a_job_held_by_hand_stays_held_and_keeps_nobody_waiting(on_slurm: User) -> None:
    user = on_slurm
    with held(user, nodes=4):
        first = create(user)
        wait_until(lambda: waiting(user) == [first], PATIENCE)
        job, _ = job_in_slurm(user, first)
        slurm_command(user, "scontrol", "uhold", job)
        wait_until(lambda: "held by hand" in user.det("experiment", "describe", str(first)), PATIENCE)
        others = [create(user, priority=50), create(user, priority=1)]
        wait_until(lambda: waiting(user) == others[::-1], PATIENCE)
        assert job_in_slurm(user, first) == (job, "JobHeldUser")
    for id in others:
        user.wait_state(id, "COMPLETED", timeout=PATIENCE)
    assert job_in_slurm(user, first) == (job, "JobHeldUser")
    slurm_command(user, "scontrol", "release", job)
    user.wait_state(first, "COMPLETED", timeout=PATIENCE)


def test_experiments_share_by_weight_and_max_slots_outlives_the_master(on_slurm: User) -> None:
    user, limit = on_slurm, 3
    with held(user, nodes=2):
        with held(user, nodes=2):  # nobody has a start over the other
            one = create(user, 200, resource_pool="shared", weight=1)
            three = create(user, 200, resource_pool="shared", weight=3)
        wait_until(lambda: ended(user, one, three) >= 3 * SLOTS, PATIENCE)
        while ended(user, one, three) < 7 * SLOTS:
            of, turn = served(user)
            apart = abs(of[one] - of[three])
            assert apart <= SLOTS * turn, f"{apart / turn:.1f} runs apart: more than what runs at the moment explains"
        for id in (one, three):
            user.det("experiment", "kill", str(id))
        capped = create(user, 12, 2, resource_pool="main", max_slots=limit)
        kills = 0
        while user.experiment(capped)["state"] not in ("STATE_COMPLETED", "STATE_ERROR"):
            if kills < 2 and ended(user, capped) >= 3 * (kills + 1):
                user.kill_master()
                user.det("experiment", "list")
                kills += 1
        assert (kills, at_once(user, capped)) == (2, limit)
        assert user.experiment(capped)["state"] == "STATE_COMPLETED"


# --- what the ledger says


def rows(user: User, query: str) -> list[Any]:
    connection = sqlite3.connect(f"file:{user.home / 'dethpc.db'}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def ended(user: User, *experiments: int) -> int:
    """How many of their runs have ended."""
    found = rows(user, "SELECT experiment_id FROM runs WHERE state = 'ENDED' AND started_at IS NOT NULL")
    return sum(id in experiments for (id,) in found)


def served(user: User) -> tuple[dict[int, float], float]:
    """Slot-seconds over weight that each experiment was served, as the engine counts them, and the seconds of a run."""
    found = rows(user, "SELECT experiment_id, slots, started_at, ended_at FROM runs WHERE started_at IS NOT NULL")
    weights, now = dict(rows(user, "SELECT id, weight FROM experiments")), time.time()
    of = dict.fromkeys(weights, 0.0)
    for id, slots, started_at, ended_at in found:
        of[id] += slots * ((ended_at or now) - started_at) / weights[id]
    lasted = [ended_at - started_at for _, _, started_at, ended_at in found if ended_at]
    return of, sum(lasted) / len(lasted)


def at_once(user: User, experiment: int) -> int:
    """The most runs that it had at a time, from the wish to submit one to its end."""
    changes = []
    for created_at, ended_at in rows(user, f"SELECT created_at, ended_at FROM runs WHERE experiment_id = {experiment}"):
        changes += [(created_at, 1), (ended_at, -1)]
    return max(accumulate(change for _, change in sorted(changes)))
