"""A master that cannot ask the scheduler of its runs trains none of them twice, whatever shell or machine it starts on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import TRAIN, User, processes_with
from tests.e2e.machines import Machine, slurm_apart, without_slurm
from tests.e2e.test_slurm import user_of
from tests.waiting import wait_until

LOCKED = """
import determined as det, fcntl, os
go = det.get_cluster_info().trial.hparams.get("go")
if go:
    lock = open(f"{go}.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        open(f"{go}.twice", "a").write("twice ")
"""
"""Before the training: a second one of the same trial beside the first leaves a file."""


def one_that_waits(user: User) -> tuple[int, Path]:
    """An experiment whose trial holds a lock and waits at its fifth step until the returned file is there."""
    go = user.folder / "go"
    (user.folder / "context" / "train.py").write_text(LOCKED + TRAIN)
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 8, "hold": 5, "go": str(go)}, max_restarts=3)
    user.wait_steps(experiment, 5)
    return experiment, go


def trained_once(user: User, experiment: int) -> None:
    (trial,) = user.trials(experiment)
    assert (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 0)
    assert not (user.folder / "go.twice").exists()
    assert len(user.runs_of(experiment)) == 1


@pytest.fixture
def shell(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """A user whose Slurm is in a folder of its own, as ``module load slurm`` puts it on PATH, and who names no scheduler."""
    with user_of(slurm, tmp_path) as user:
        mine, rest = slurm_apart(tmp_path)
        del user.env["DETHPC_SCHEDULER"]
        user.env["PATH"] = f"{user.env['PATH'].split(':')[0]}:{mine}:{rest}"
        yield user
        user.env["PATH"] += ":/usr/bin:/bin"


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.everything)])
def test_a_shell_without_slurm_goes_on_with_the_slurm_of_the_master_before(shell: User, how: str) -> None:
    experiment, go = one_that_waits(shell)
    if how == "killed":
        shell.kill_master()
    else:
        shell.det("master", "down")
    cron = without_slurm(shell)
    cron.det("experiment", "list")
    second = cron.create(
        hyperparameters={"lr": 0.2, "steps": 2}
    )  # its end says that the master has looked at all jobs since
    cron.det("experiment", "wait", str(second))
    go.touch()
    cron.det("experiment", "wait", str(experiment))
    trained_once(cron, experiment)
    assert json.loads((cron.home / "scheduler.json").read_text())["kind"] == "slurm"
    assert not (cron.home / "local").exists()


@pytest.mark.everything
def test_a_host_without_slurm_says_so_and_concludes_nothing(shell: User, tmp_path: Path) -> None:
    experiment, go = one_that_waits(shell)
    shell.det("master", "down")
    (tmp_path / "slurm").rename(tmp_path / "elsewhere")  # a machine that is no node of the cluster
    other = without_slurm(shell)
    wait_until(lambda: other.det("experiment", "list") and "Slurm gives no answer" in other.errors)
    assert "1 run is shown as last seen" in other.errors
    assert "is this a machine of the cluster?" in other.errors
    other.det("trial", "describe", str(other.trials(experiment)[0]["id"]))
    assert "1 run is shown as last seen" in other.errors
    (tmp_path / "elsewhere").rename(tmp_path / "slurm")
    go.touch()
    other.det("experiment", "wait", str(experiment))
    trained_once(other, experiment)


@pytest.mark.everything
def test_no_master_of_another_kind_starts_while_runs_are_open(shell: User) -> None:
    experiment, go = one_that_waits(shell)
    shell.det("master", "down")
    local = User(shell.folder, shell.home, {**shell.env, "DETHPC_SCHEDULER": "local"})
    local.det("experiment", "list", code=1)
    assert "1 run is open at the Slurm cluster" in local.errors
    assert "DETHPC_SCHEDULER=slurm det master up" in local.errors
    shell.det("experiment", "list")
    go.touch()
    shell.det("experiment", "wait", str(experiment))
    trained_once(shell, experiment)
    shell.det("master", "down")
    local.det("experiment", "list")  # none is open any more


def test_runs_of_another_cluster_are_left_alone_and_named(shell: User, slurm_private: object, tmp_path: Path) -> None:
    experiment, go = one_that_waits(shell)
    shell.det("master", "down")
    other_cluster = slurm_private()  # type: ignore[operator]
    other = User(shell.folder, shell.home, {**shell.env, "SLURM_CONF": other_cluster.env["SLURM_CONF"]})
    wait_until(lambda: other.det("experiment", "list") and "1 run is at the Slurm cluster" in other.errors)
    assert "nothing is concluded there" in other.errors
    (trial,) = other.trials(experiment)
    assert "which this master cannot ask" in other.det("trial", "describe", str(trial["id"]))
    second = other.create(hyperparameters={"lr": 0.2, "steps": 2})
    other.det("experiment", "wait", str(second))
    other.det("master", "down")
    shell.det("experiment", "list")
    go.touch()
    shell.det("experiment", "wait", str(experiment))
    trained_once(shell, experiment)


# --- one home on two machines


@pytest.fixture
def other(user: User) -> Iterator[Machine]:
    machine = Machine(user, "otherhost")
    yield machine
    machine.end()


@pytest.mark.everything
def test_another_machine_leaves_the_trials_of_this_one_alone(user: User, other: Machine) -> None:
    experiment, go = one_that_waits(user)
    user.det("master", "down")
    wait_until(lambda: other.det("experiment", "list") and "1 run is at the machine" in other.errors)
    assert "If all there is over: det master take-over" in other.errors
    assert "which this master cannot ask" in other.det("trial", "describe", "1")
    user.config("second.yaml", hyperparameters={"lr": 0.2, "steps": 2})
    other.det("experiment", "create", "second.yaml", "context")
    other.det("experiment", "wait", "2")  # it has its own slots, and looked at all jobs since
    other.det("master", "down")
    user.det("experiment", "list")
    assert "cannot ask" not in user.errors
    go.touch()
    user.det("experiment", "wait", str(experiment))
    trained_once(user, experiment)


@pytest.mark.everything
def test_a_job_that_ended_while_another_machine_had_the_master_is_taken_in_there(user: User, other: Machine) -> None:
    """What a run's directory says counts, whoever asks."""
    experiment, go = one_that_waits(user)
    user.det("master", "down")
    other.det("experiment", "list")
    go.touch()
    other.det("experiment", "wait", str(experiment))
    other.det("master", "down")
    user.det("experiment", "list")
    trained_once(user, experiment)


def test_runs_of_a_machine_that_is_gone_start_again_once_their_owner_says_so(user: User, other: Machine) -> None:
    (user.folder / "context" / "train.py").write_text(TRAIN)
    user.config(hyperparameters={"lr": 0.1, "steps": 12, "hold": 7}, max_restarts=0)
    other.det("experiment", "create", "config.yaml", "context")
    wait_until(
        lambda: int(json.loads(other.det("trial", "describe", "1", "--json"))["trial"]["totalBatchesProcessed"]) >= 7
    )
    other.end()
    wait_until(lambda: not processes_with(f"DETHPC_HOME={user.home}"))
    held = json.loads((user.home / "master.json").read_text())
    (user.home / "master.json").write_text(json.dumps({**held, "heartbeat": 0}))  # it is a minute later
    wait_until(lambda: user.det("experiment", "list") and "1 run is at the machine otherhost" in user.errors)
    assert "otherhost" in user.det("master", "take-over", "--yes")
    user.det("experiment", "wait", "1")
    (trial,) = user.trials(1)
    assert (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 0)
    user.det("experiment", "list")
    assert "cannot ask" not in user.errors and "otherhost" not in user.errors


@pytest.mark.everything
def test_a_master_that_was_rebuilt_knows_where_its_runs_are(user: User, other: Machine) -> None:
    experiment, go = one_that_waits(user)
    user.det("master", "down")
    user.det("master", "rebuild", "--yes")
    wait_until(lambda: other.det("experiment", "list") and "1 run is at the machine" in other.errors)
    other.det("master", "down")
    user.det("experiment", "list")
    go.touch()
    user.det("experiment", "wait", str(experiment))
    trained_once(user, experiment)
