"""A user at a shell: ``det`` in a folder and a home of its own, on this machine or on a real Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dethpc.client import MasterFinder, Session
from dethpc.master.durable import harness
from tests import processes
from tests.containers_root import debian_root
from tests.unix_user import UnixUser, unix_user
from tests.waiting import LONG_ENOUGH, wait_until

TRAIN = '''
"""A training whose state is a chain of hashes: one step left out or done twice gives another end.

The hyperparameter "hold" is a step at which the first run waits until it is asked to stop, or until the file "go" is there: what a
test does in the middle of a training then happens in the middle, however long it takes.
"""
import hashlib, json, os, pathlib, sys, time
import determined as det

info = det.get_cluster_info()
hparams = info.trial.hparams
steps, pause = int(hparams.get("steps", 20)), float(hparams.get("pause", 0.02))
hold = int(hparams.get("hold", 0)) if info.latest_checkpoint is None else 0
state, start = "seed", 0
with det.core.init() as core:
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            kept = json.loads((path / "state.json").read_text())
            state, start = kept["state"], kept["step"]
    print(f"starting at step {start}", flush=True)
    for step in range(start, steps):
        state = hashlib.sha256(f"{state}:{step}:{hparams['lr']}".encode()).hexdigest()
        time.sleep(pause)
        core.train.report_training_metrics(steps_completed=step + 1, metrics={"loss": int(state[:8], 16) / 2**32})
        stop = core.preempt.should_preempt()
        while step + 1 == hold and not stop and not os.path.exists(hparams.get("go", "")):
            time.sleep(0.05)
            stop = core.preempt.should_preempt()
        if (step + 1) % 5 == 0 or stop or step + 1 == steps:
            with core.checkpoint.store_path({"steps_completed": step + 1}) as (path, uuid):
                (path / "state.json").write_text(json.dumps({"state": state, "step": step + 1}))
        if stop and step + 1 < steps:
            print(f"stopping at step {step + 1}", flush=True)
            sys.exit(0)
    loss = abs(hparams["lr"] - 0.01)
    core.train.report_validation_metrics(steps_completed=steps, metrics={"validation_loss": loss, "end": int(state[:8], 16)})
    print(f"final state {state}", flush=True)
'''

SLEEPS = "import subprocess, time\nsubprocess.Popen(['sleep', '98765'])\ntime.sleep(98765)\n"
"""A training that never ends, nor does a process that it starts."""


class User:
    """Runs ``det`` as a user would. ``env`` is the whole environment of the commands, ``python`` what they run on, and ``become``
    says to subprocess which Unix user they run as: this process's own, where it is empty."""

    def __init__(
        self,
        folder: Path,
        home: Path,
        env: dict[str, str],
        python: str = sys.executable,
        become: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.folder, self.home, self.env, self.python, self.become = folder, home, env, python, become

    def det(self, *words: str, code: int | None = 0, timeout: float = LONG_ENOUGH, **options: Any) -> str:
        done = subprocess.run(
            [self.python, "-m", "dethpc.cli", *words],
            cwd=self.folder,
            **self.become,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )
        if code is not None:
            assert done.returncode == code, f"det {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.errors = done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.det(*words, "--json"))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def config(self, file: str = "config.yaml", **changes: Any) -> Path:
        import yaml

        config: dict[str, Any] = {
            "name": "test",
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": "validation_loss"},
            "hyperparameters": {"lr": 0.1},
            "max_restarts": 0,
            "reproducibility": {"experiment_seed": 42},
            **changes,
        }
        return self.write(file, yaml.safe_dump({name: value for name, value in config.items() if value is not None}))

    def create(self, *options: str, **changes: Any) -> int:
        self.config(**changes)
        out = self.det("experiment", "create", "config.yaml", "context", *options)
        return int(out.split()[-1].strip())

    def experiment(self, experiment_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.api("GET", f"/api/v1/experiments/{experiment_id}")["experiment"]
        return found

    def trials(self, experiment_id: int) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = self.api("GET", f"/api/v1/experiments/{experiment_id}/trials?limit=1000")[
            "trials"
        ]
        return sorted(trials, key=lambda trial: int(trial["id"]))

    def runs_of(self, experiment_id: int) -> list[str]:
        """Job ids of all runs of its trials."""
        trials = [self.json("trial", "describe", str(trial["id"])) for trial in self.trials(experiment_id)]
        return [run["jobId"] for trial in trials for run in trial["runs"] if run["jobId"]]

    def metrics(self, trial_id: int, group: str) -> list[dict[str, Any]]:
        """Every report of the group that counts, in order."""
        answers = self.session().stream(
            "/api/v1/trials/metrics/trial_metrics", params={"trialIds": trial_id, "group": group}
        )
        return [report for answer in answers for report in answer["metrics"]]

    def api(self, method: str, path: str) -> Any:
        return getattr(self.session(), method.lower())(path)

    def session(self) -> Session:
        finder = MasterFinder(str(self.home / "master.json"))  # knows the master's certificate
        return Session(finder, (self.home / "token").read_text().strip())

    def master(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "master.json").read_text())
        return found

    def kill_master(self) -> None:
        """``kill -9``, as a login node's watchdog would."""
        pid = self.master()["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])

    def wait_state(self, experiment_id: int, *states: str, timeout: float = LONG_ENOUGH) -> dict[str, Any]:
        wait_until(lambda: self.experiment(experiment_id)["state"].removeprefix("STATE_") in states, timeout)
        return self.experiment(experiment_id)

    def wait_steps(self, experiment_id: int, steps: int, timeout: float = LONG_ENOUGH) -> None:
        """Until the first trial has reported that many steps."""
        wait_until(lambda: any(self._steps(t) >= steps for t in self.trials(experiment_id)), timeout)

    def _steps(self, trial: dict[str, Any]) -> int:
        return int(trial.get("totalBatchesProcessed") or 0)

    def log(self, experiment_id: int) -> str:
        return self.det("experiment", "logs", str(experiment_id))


def make_home(user: User) -> None:
    """As the first command would, with the harness bundle: this process has its code compiled already (tests/conftest.py)."""
    user.home.mkdir(mode=0o700, parents=True)
    harness.build(user.home)


def make_user(tmp_path: Path, **env: str) -> User:
    folder, home = tmp_path / "work", tmp_path / "home"
    (folder / "context").mkdir(parents=True)
    (folder / "context" / "train.py").write_text(TRAIN)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "DET", "PYTEST"))}
    root = str(Path(__file__).parents[2])
    path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    return User(folder, home, {**inherited, "PYTHONPATH": root, "PATH": path, "DETHPC_HOME": str(home), **env})


processes_with = processes.carrying


def sleepers(user: User) -> list[int]:
    """What ``SLEEPS`` has started and has not ended. Other tests run the like beside this one."""
    found = []
    for pid in processes_with(str(user.home)):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\0" + b"98765\0":
                found.append(pid)
    return found


def take_down(user: User) -> None:
    user.det("master", "down", code=None)
    for pid in processes_with(f"DETHPC_HOME={user.home}"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """A user of this machine alone, without a Slurm."""
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    make_home(user)
    yield user
    take_down(user)


PODMAN = """#!/bin/sh
# Its crun starts nothing on a machine with cgroups of both versions; this shows it those of version 2 alone.
case $(stat -f -c %T /sys/fs/cgroup) in cgroup2fs) exec podman "$@" ;; esac
exec podman unshare sh -c '
    [ ! -d /sys/fs/cgroup/unified ] || mount --rbind /sys/fs/cgroup/unified /sys/fs/cgroup
    exec podman "$@"' podman "$@"
"""


@pytest.fixture(scope="session")
def ordinary() -> Iterator[UnixUser]:
    """One who has an image of the tests, and a ``podman`` that starts containers here."""
    with unix_user() as who:
        subprocess.run(["cp", "-a", str(debian_root()), str(who.folder / "image")], check=True)
        who.owns(who.folder / "image")
        (who.folder / "podman").write_text(PODMAN)
        (who.folder / "podman").chmod(0o755)
        with devices_of_nvidia():
            yield who


@contextlib.contextmanager
def devices_of_nvidia() -> Iterator[None]:
    """What ``nvidia-ctk cdi generate`` makes of a node's devices, for a node that pretends to have some."""
    place = Path("/etc/cdi/dethpc-test.json")
    if any(place.parent.glob("*")):
        yield
        return
    edits = {"env": ["SHOWN_BY_CDI=all"]}
    devices = {"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": edits}]}
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(devices))
    try:
        yield
    finally:
        place.unlink()
        place.parent.rmdir()
