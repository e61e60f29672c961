"""Notebooks, TensorBoards and shells from ``det`` to their end, on this machine."""

from __future__ import annotations

import getpass
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dethpc.exec.service import SOCKET
from tests.e2e.conftest import User, processes_with
from tests.services import Jupyter, Service, unix
from tests.waiting import wait_until

SCALARS = "data/plugin/scalars/scalars?run=experiment-{0}/trial/{1}&tag=Determined/loss"


def to_master(user: User) -> Callable[[], socket.socket]:
    """What connects to the master."""

    def connect() -> socket.socket:
        master = user.master()
        address = urlsplit(master["url"])
        sock = socket.create_connection((str(address.hostname), address.port or 80))
        if address.scheme != "https":
            return sock
        context = ssl.create_default_context(cafile=str(user.home / "master.pem"))
        context.check_hostname = False
        return context.wrap_socket(sock)

    return connect


def served(user: User, task_id: str, kind: type[Service] = Service) -> Service:
    token = (user.home / "token").read_text().strip()
    host = urlsplit(user.session().url).netloc
    return kind(to_master(user), f"/proxy/{task_id}/", host, {"Authorization": f"Bearer {token}"})


def state(user: User, noun: str, task_id: str) -> str:
    key = noun.removesuffix("s")
    return str(user.api("GET", f"/api/v1/{noun}/{task_id}")[key]["state"])


def test_a_tensorboard_shows_a_scalar_of_an_experiment_and_ends_when_it_is_killed(user: User) -> None:
    experiment = user.create()
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    task_id = user.det("tensorboard", "start", str(experiment), "--detach").strip()
    service = served(user, task_id)
    scalars = SCALARS.format(experiment, trial["id"])
    wait_until(lambda: service.ready("data/environment") and service.request("GET", scalars)[0] == 200)
    losses = {m["totalBatches"]: m["metrics"]["avg_metrics"]["loss"] for m in user.metrics(trial["id"], "training")}
    wait_until(lambda: len(service.get(scalars)) == len(losses))
    assert {step: pytest.approx(value, rel=1e-5) for _, step, value in service.get(scalars)} == losses
    (row,) = user.json("tensorboard", "list")
    assert row["experimentIds"] == [experiment] and row["slots"] == 0
    assert processes_with(f"DET_TASK_ID={task_id}")
    user.det("tensorboard", "kill", task_id)
    wait_until(lambda: state(user, "tensorboards", task_id) == "STATE_TERMINATED")
    assert not processes_with(f"DET_TASK_ID={task_id}")
    user.det("tensorboard", "start", "999", code=1)
    assert "experiment 999 not found" in user.errors


def test_a_tensorboard_of_single_trials_ends_when_it_is_idle(user: User) -> None:
    experiment = user.create()
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    options = ("--config", "idle_timeout=1s", "--detach")
    task_id = user.det("tensorboard", "start", "--trial-ids", str(trial["id"]), *options).strip()
    wait_until(lambda: state(user, "tensorboards", task_id) == "STATE_TERMINATED")
    assert "TensorBoard ends: idle for 1s (idle_timeout)" in user.det("tensorboard", "logs", task_id)
    assert user.json("tensorboard", "describe", task_id)["exitStatus"] == "idle for 1s (idle_timeout)"


def test_a_notebook_answers_through_the_proxy_and_its_files_stay(user: User) -> None:
    user.write("context/data.txt", "of the context")
    task_id = user.det("notebook", "start", "-c", "context", "--config", "resources.slots=0", "--detach").strip()
    service = served(user, task_id, Jupyter)
    wait_until(lambda: service.ready("api"))
    assert service.get("api/contents/data.txt?content=1")["content"] == "of the context"
    user.kill_master()
    user.det("notebook", "list")
    wait_until(lambda: service.ready("api"))
    user.det("notebook", "kill", task_id)
    wait_until(lambda: state(user, "notebooks", task_id) == "STATE_TERMINATED")
    assert not processes_with(f"DET_TASK_ID={task_id}")
    assert (user.home / "tasks" / task_id / "data.txt").read_text() == "of the context"


def socket_of(task_id: str) -> Path:
    """What the task listens on."""
    for pid in processes_with(f"DET_TASK_ID={task_id}"):
        for entry in Path(f"/proc/{pid}/environ").read_text().split("\0"):
            if entry.startswith(f"{SOCKET}="):
                return Path(entry.partition("=")[2])
    raise AssertionError(f"{task_id} has no socket")


def ended_for_want_of_use(user: User, noun: str, task_id: str) -> bool:
    """Whether it has ended, for the reason that lists and descriptions give."""
    if state(user, f"{noun}s", task_id) != "STATE_TERMINATED":
        return False
    (row,) = [row for row in user.json(noun, "list", "--all") if row["id"] == task_id]
    assert row["exitStatus"] == row["reason"] == "idle for 10s (idle_timeout)"
    assert "idle for 10s (idle_timeout)" in user.det(noun, "list", "--all") and not processes_with(task_id)
    return "Ended:" in user.det(noun, "describe", task_id)


def test_a_notebook_ends_when_it_is_idle_and_not_while_it_computes(user: User) -> None:
    options = (
        "--config",
        "resources.slots=0",
        "--config",
        "idle_timeout=10s",
        "--config",
        "notebook_idle_type=activity",
    )
    task_id = user.det("notebook", "start", *options, "--detach").strip()
    wait_until(lambda: served(user, task_id).ready("api"))
    service = Jupyter(unix(socket_of(task_id)), f"/proxy/{task_id}/")  # by no proxy, which lets no cookie through
    printed = service.run(service.start_kernel(), "import time; time.sleep(15); print('awake')")
    assert printed == "awake\n" and state(user, "notebooks", task_id) == "STATE_RUNNING"
    wait_until(lambda: "Idle, ends:" in user.det("notebook", "describe", task_id))
    wait_until(lambda: ended_for_want_of_use(user, "notebook", task_id))


def test_a_shell_ends_when_it_is_idle_and_not_while_somebody_is_in_it(user: User) -> None:
    task_id = user.det("shell", "start", "--config", "idle_timeout=10s", "--detach").strip()
    assert user.det("shell", "open", task_id, "sleep 15; echo still here") == "still here\n"
    assert state(user, "shells", task_id) == "STATE_RUNNING"
    (allocation,) = user.api("GET", f"/api/v1/tasks/{task_id}")["task"]["allocations"]
    assert allocation["isReady"]
    wait_until(lambda: ended_for_want_of_use(user, "shell", task_id))


def test_a_shell_opens_in_the_tasks_environment(user: User) -> None:
    user.env["DATASET"] = "cifar"
    user.write("context/data.txt", "of the context")
    task_id = user.det("shell", "start", "-c", "context", "--detach").strip()
    opened = user.det("shell", "open", task_id, "cat data.txt; echo; echo $DATASET in $DET_TASK_TYPE")
    assert opened == "of the context\ncifar in SHELL\n"
    user.det("shell", "open", task_id, "exit 7", code=7)
    user.det("shell", "open", task_id, "--", "kill -9 $$", code=137)
    (row,) = user.json("shell", "list")
    assert row["agentUserGroup"]["user"] == getpass.getuser() and row["privateKey"] is None
    user.det("shell", "kill", task_id)
    wait_until(lambda: state(user, "shells", task_id) == "STATE_TERMINATED")
    assert not processes_with(f"DET_TASK_ID={task_id}")


def test_a_shell_opens_beside_a_running_trial(user: User) -> None:
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 10, "hold": 5})
    user.wait_steps(experiment, 5)
    (trial,) = user.trials(experiment)
    beside = user.det("shell", "open", "--trial", str(trial["id"]), "echo $DET_TRIAL_ID; ls")
    assert beside.splitlines() == [str(trial["id"]), "train.py"]
    user.det("experiment", "kill", str(experiment))
    user.wait_state(experiment, "CANCELED")
    user.det("shell", "open", "--trial", str(trial["id"]), "true", code=1)
    assert "does not run at present" in user.errors


def test_a_notebook_without_jupyterlab_is_questioned_at_its_launch_and_says_why_it_failed(user: User) -> None:
    bare = user.folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = user.env["PATH"].split(os.pathsep)
    user.env["PATH"] = os.pathsep.join([str(bare / "bin"), *python])
    user.det("notebook", "start", code=127)
    assert f"JupyterLab is not installed for {bare / 'bin' / 'python3'}, as far as" in user.errors
    assert "has ended: exit code 127: dethpc: JupyterLab is not installed" in user.errors
