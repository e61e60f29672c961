"""A search's first trials are one job array on a real Slurm, and each of its elements is a job of its own for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User, wait_until
from tests.e2e.test_slurm import LIAR, slurm_command, user_of

SHOWS = """\
env | grep '^SLURM_ARRAY' && exit 1
test "$SLURM_JOB_ID" -gt 0 || exit 1
exec python3 train.py
"""


@pytest.fixture
def cluster(slurm_private: Callable[..., Cluster]) -> Cluster:
    return slurm_private(nodes=2)


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(cluster, tmp_path) as user:
        yield user


def create(user: User, trials: int, **hparams: Any) -> int:
    """A grid of so many trials, all at once."""
    user.write("context/shows.sh", SHOWS)
    values = [0.1 * (n + 1) for n in range(trials)]
    return user.create(
        entrypoint="bash shows.sh",
        searcher={"name": "grid", "metric": "validation_loss", "max_concurrent_trials": trials},
        hyperparameters={"lr": {"type": "categorical", "vals": values}, "steps": 10, "pause": 0, **hparams},
        resources={"slots_per_trial": 1},
    )


def listed(user: User, *states: str) -> list[str]:
    """Job ids as people see them, in Slurm's order."""
    which = f"--states={','.join(states or ('PENDING', 'RUNNING'))}"
    return slurm_command(user, "squeue", "--me", "--array", "--noheader", which, "--format=%i").split()


def exact(user: User, trial: dict[str, Any]) -> bool:
    return [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 11))


@pytest.mark.everything
def test_elements_are_killed_held_reniced_and_requeued_alone_while_masters_die(cluster: Cluster, user: User) -> None:
    cluster.run("scontrol", "update", "partitionname=main", "state=down")
    foreign = cluster.run("sbatch", "--parsable", "--array=0-1", "--hold", "--output=/dev/null", "--wrap=true").strip()
    go = user.folder / "go"
    experiment = create(user, 4, hold=3, go=str(go))
    wait_until(lambda: len(listed(user)) == 6)
    array = next(id for id in listed(user) if not id.startswith(f"{foreign}_")).partition("_")[0]
    wait_until(lambda: sorted(user.runs_of(experiment)) == [f"{array}_{n}" for n in range(4)])
    trials = user.trials(experiment)
    for n, trial in enumerate(trials):
        (found,) = user.json("slurm", f"{array}_{n}")["runs"]
        assert found["trialId"] == trial["id"]
    user.kill_master()
    user.det("trial", "kill", str(trials[3]["id"]))
    wait_until(lambda: f"{array}_3" not in listed(user))
    slurm_command(user, "scontrol", "uhold", f"{array}_2")
    slurm_command(user, "scontrol", "update", f"JobId={array}_1", "Nice=7")
    cluster.run("scontrol", "update", "partitionname=main", "state=up")
    wait_until(lambda: {f"{array}_0", f"{array}_1"} <= set(listed(user, "RUNNING")))
    assert f"{array}_2" in listed(user, "PENDING")
    user.kill_master()
    slurm_command(user, "scontrol", "release", f"{array}_2")
    user.det("experiment", "list")  # starts the next master
    wait_until(lambda: user.trials(experiment)[1]["totalBatchesProcessed"] >= 3)
    slurm_command(user, "scontrol", "requeue", f"{array}_1")
    go.touch()
    user.wait_state(experiment, "COMPLETED", timeout=900)
    ended = user.trials(experiment)
    assert [trial["state"].removeprefix("STATE_") for trial in ended] == ["COMPLETED"] * 3 + ["CANCELED"]
    assert all(exact(user, trial) for trial in ended[:3])
    assert sorted(user.runs_of(experiment)) == [f"{array}_{n}" for n in range(4)], "one run each, the requeued one too"
    wait_until(lambda: not list(user.home.glob("arrays/*")))
    left = [id for id in listed(user) if "_" in id]  # a job of its own removes checkpoints
    assert left == [f"{foreign}_0", f"{foreign}_1"], "a user's own array is nobody's business"
    cluster.run("scancel", foreign)


@pytest.mark.parametrize("limit", ["MaxArraySize=3", "none"])
def test_where_no_array_is_taken_trials_go_alone(
    slurm_private: Callable[..., Cluster], tmp_path: Path, limit: str
) -> None:
    cluster = slurm_private(nodes=2)
    with user_of(cluster, tmp_path) as user:
        if limit == "none":
            liar = tmp_path / "bin" / "sbatch"
            liar.parent.mkdir()
            refuse = "echo 'sbatch: error: Batch job submission failed: Invalid job array specification' >&2; exit 1"
            real = slurm_command(user, "which", "sbatch").strip()
            liar.write_text(f'#!/bin/bash\ncase "$*" in *--array*) {refuse} ;; esac\nexec {real} "$@"\n')
            liar.chmod(0o755)
            user.env["PATH"] = f"{liar.parent}:{user.env['PATH']}"
        else:
            conf = Path(cluster.env["SLURM_CONF"])
            conf.write_text(f"{conf.read_text()}\n{limit}\n")
            cluster.run("scontrol", "reconfigure")
        experiment = create(user, 3)
        user.wait_state(experiment, "COMPLETED", timeout=900)
        assert all(exact(user, trial) for trial in user.trials(experiment))
        assert any("_" in id for id in user.runs_of(experiment)) is (limit != "none")


def test_an_array_whose_answer_was_lost_trains_each_of_its_trials_once(
    slurm_private: Callable[..., Cluster], tmp_path: Path
) -> None:
    """sbatch says that it timed out, and the array comes to be later; the master that asked for it is gone by then."""
    cluster = slurm_private(nodes=2, message_timeout=2)
    with user_of(cluster, tmp_path) as user:
        liar = tmp_path / "bin" / "sbatch"
        liar.parent.mkdir()
        real = slurm_command(user, "which", "sbatch").strip()
        liar.write_text(LIAR.format(folder=tmp_path, delay=2, sbatch=real))
        liar.chmod(0o755)
        user.env["PATH"] = f"{liar.parent}:{user.env['PATH']}"
        experiment = create(user, 3)
        wait_until(lambda: list(user.home.glob(f"runs/{experiment}.*/submitting")))
        user.kill_master()
        user.det("experiment", "list")  # starts the next one
        user.wait_state(experiment, "COMPLETED", timeout=900)
        for trial in user.trials(experiment):
            assert exact(user, trial)
            assert user.det("trial", "logs", str(trial["id"])).count("starting at step 0") == 1
