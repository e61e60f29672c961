"""A real daemon that serves the REST API over a real store, but submits nothing: what a test puts into the store stays."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dethpc.client import MasterFinder, Session
from dethpc.config import task as task_config
from dethpc.config.site import SiteConfig
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, Row, Run, Task, Trial
from dethpc.domain.ids import run_id, task_id
from dethpc.domain.states import AttemptState, CheckpointState, RunState, State, TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.engine import events
from dethpc.engine.stop import trial_task
from dethpc.errors import DethpcError
from dethpc.exec import garbage
from dethpc.master.daemon import Daemon
from dethpc.master.http.app import create_app
from dethpc.master.http.server import Server
from dethpc.master.installation import cluster_id
from dethpc.master.scheduler import find_scheduler
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from dethpc.rundir.token import read as read_token
from tests.waiting import LONG_ENOUGH, wait_until

T0 = 1_763_000_000.0

CONFIG: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "random", "metric": "loss", "smaller_is_better": True, "max_trials": 3},
    "hyperparameters": {"lr": {"type": "double", "minval": 0.001, "maxval": 0.1}},
    "resources": {"slots_per_trial": 1, "resource_pool": "default"},
}


def experiment(id: int = 1, **changes: Any) -> Experiment:
    """A completed experiment."""
    fact = Experiment(
        id=id,
        owner="ada",
        config=CONFIG,
        original_config="name: digits\n",
        state=State.COMPLETED,
        created_at=T0 + id,
        seed=7,
        queue_id=f"00000000-0000-4000-8000-{id:012d}",
        name=f"digits {id}",
        pool="default",
        started_at=T0 + id,
        ended_at=T0 + 100 + id,
        progress=1.0,
        metric="loss",
    )
    return replace(fact, **changes)


def trial(id: int, experiment_id: int = 1, **changes: Any) -> Trial:
    fact = Trial(
        id=id,
        experiment_id=experiment_id,
        index=id - 1,
        hparams={"lr": id / 100},
        seed=id,
        state=State.COMPLETED,
        created_at=T0 + 1,
        started_at=T0 + 2,
        ended_at=T0 + 90,
        runs=1,
        steps_completed=4,
        best_validation=1.0 / id,
        latest_validation=2.0 / id,
        best_validation_steps=2,
    )
    return replace(fact, **changes)


def task_of(trial: Trial) -> Task:
    return trial_task(experiment(trial.experiment_id), trial)


def run_of(trial: Trial, n: int = 1, **changes: Any) -> Run:
    fact = Run(
        id=run_id(task_id(trial.experiment_id, trial.id), n),
        experiment_id=trial.experiment_id,
        task_id=task_id(trial.experiment_id, trial.id),
        number=n,
        state=RunState.ENDED,
        created_at=T0 + 2,
        slots=1,
        pool="default",
        attempt=0,
        nodes=["node1"],
    )
    return replace(fact, **changes)


def uuid_of(trial_id: int, steps: int) -> str:
    return f"{trial_id:08d}-0000-4000-8000-{steps:012d}"


def trained(trial: Trial) -> list[Row]:
    """A trial with a run, training at every step, and validation and a checkpoint at steps 2 and 4."""
    run = run_of(trial)
    attempt = Attempt(run.id, 0, trial.experiment_id, run.task_id, AttemptState.ENDED, T0 + 2, T0 + 90, nodes=["node1"])
    rows: list[Row] = [trial, run, attempt]
    seq = 0
    for step in range(1, 5):
        seq += 1
        rows.append(_metric(run, trial, seq, "training", step, {"loss": 8.0 / step, "epoch": step}))
        if step % 2 == 0:
            seq += 1
            value = (1.0 if step == 2 else 2.0) / trial.id
            rows.append(_metric(run, trial, seq, "validation", step, {"loss": value, "accuracy": 1 - value}))
            seq += 1
            rows.append(
                Checkpoint(
                    uuid=uuid_of(trial.id, step),
                    experiment_id=trial.experiment_id,
                    trial_id=trial.id,
                    run_id=run.id,
                    attempt=0,
                    seq=seq,
                    state=CheckpointState.COMPLETED,
                    steps_completed=step,
                    reported_at=T0 + 10 * step + trial.id,
                    metadata={"framework": "torch"},
                    resources={"weights.pt": 1000, "code/": 0},
                )
            )
    return rows


def _metric(run: Run, trial: Trial, seq: int, group: str, step: int, metrics: dict[str, Any]) -> Metric:
    return Metric(run.id, 0, seq, trial.experiment_id, trial.id, group, step, T0 + 10 * step, metrics)


class Served:
    """A daemon behind a real HTTP server on loopback."""

    def __init__(self, daemon: Daemon, url: str) -> None:
        self.daemon, self.url = daemon, url
        self.token = read_token(daemon.installation.home.token) or ""
        self.owner = daemon.services.auth.owner
        self.session = Session(url, self.token)

    def put(self, rows: Sequence[Row]) -> None:
        """Rows that the engine's memory does not know: for what is read alone."""
        tasks = [task_of(row) for row in rows if isinstance(row, Trial)]
        self.daemon.store.commit([*rows, *tasks])
        for run in (row for row in rows if isinstance(row, Checkpoint)):
            self.prepared_before(run.run_id)

    def prepared_before(self, run_id: str) -> None:
        """The run was one of this home, of a release that wrote no owners into manifests."""
        installation = self.daemon.installation
        spec = installation.home.run(run_id).spec
        spec.parent.mkdir(parents=True, exist_ok=True)
        if not spec.exists():
            write_json(spec, {"cluster_id": installation.cluster_id})

    def delete(self, experiment_id: int) -> None:
        """With its files, as the job on a compute node would remove them. No Slurm job is submitted here."""
        self.session.delete(f"/api/v1/experiments/{experiment_id}")
        ledger = self.daemon.ledger
        (run,) = [run for run in ledger.state.runs.values() if not ledger.state.tasks[run.task_id].kind.trains]
        job = self.daemon.builder.prepare([run])(run)
        assert garbage.main(str(job.run_dir / "garbage.json")) == 0
        ledger.do(events.AttemptStarted(run.id, 0, ["node1"], None, 0, T0))
        ledger.do(events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, T0))

    def collect(self, at: float | None = None) -> None:
        """Follow policies, and remove the files of what is to go, as a job on a compute node would."""
        collector, ledger = self.daemon.collector, self.daemon.ledger
        now = time.time() if at is None else at
        collector.look(now)
        for run in [run for run in ledger.state.runs.values() if ledger.state.tasks[run.task_id].experiment_id is None]:
            job = self.daemon.builder.prepare([run])(run)
            code = garbage.main(str(job.run_dir / "garbage.json"))
            ledger.do(events.AttemptStarted(run.id, 0, ["node1"], None, 0, now))
            ledger.do(events.AttemptEnded(run.id, 0, EndReport(finished=not code, exit_code=code), None, now))
        collector.look(now)

    def as_run(self, run: Run, token: str) -> Session:
        from dethpc.master.http.codes import digest

        state = RunState.RUNNING if run.ended_at is None else run.state
        self.put([replace(run, token_sha256=digest(token), state=state)])
        return Session(self.url, token)


@pytest.fixture
def site() -> SiteConfig:
    """That of ``served``."""
    return SiteConfig(cluster_name="testbed")


@pytest.fixture
def served(site: SiteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("DETHPC_SCHEDULER", "local")
    monkeypatch.setenv("DETHPC_LOCAL_SLOTS", "4")
    home = Home(tmp_path / "home")
    home.make()
    scheduler, pace = find_scheduler(home, site)
    with serving(Daemon(home, site, scheduler, cluster_id(home), pace)) as served:
        yield served


@contextlib.contextmanager
def serving(daemon: Daemon) -> Iterator[Served]:
    """Its ledger and its REST API run; nothing is submitted."""
    daemon.ledger.start()
    server = Server(create_app(daemon.services))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as the master's own: 40 ms less for each answer
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http")
    thread.start()
    try:
        wait_until(lambda: server.started)
        served = Served(daemon, f"http://127.0.0.1:{port}")
        yield served
        served.session.close()
    finally:
        server.should_exit = server.force_exit = True
        thread.join(LONG_ENOUGH)
        daemon.ledger.stop()
        daemon.lease.release()
        daemon.store.close()


class Running:
    """A whole master in a process of its own, with this machine as its cluster."""

    def __init__(self, home: Path) -> None:
        self.home = home
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DET", "SLURM"))}
        path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
        env = {**inherited, "PATH": path, "DETHPC_SCHEDULER": "local", "DETHPC_LOCAL_SLOTS": "4"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dethpc.master", "--home", str(home)],
            env={**env, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

        def address() -> Any:
            assert self.process.poll() is None, "the master did not start"
            file = home / "master.json"
            return file.exists() and json.loads(file.read_text()).get("url")

        self.url = str(wait_until(address))
        self.token = (home / "token").read_text().strip()
        self.owner = getpass.getuser()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(LONG_ENOUGH)


class Published:
    """The published client in its own environment, in a home of its own."""

    def __init__(self, venv: Path, served: Served | Running, folder: Path) -> None:
        self.venv, self.served, self.folder = venv, served, folder
        self.config = folder / "xdg"
        folder.mkdir(exist_ok=True)
        # requests prefers its own variables to what a program that uses it was told to trust.
        foreign = ("DET", "PYTHON", "SLURM", "REQUESTS_CA", "CURL_CA")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        self.env = {
            **inherited,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(self.config),
            "DET_MASTER": served.url,
            "NO_COLOR": "1",
        }

    def det(self, *words: str, code: int = 0, **options: Any) -> str:
        done = subprocess.run(
            [self.venv / "bin" / "det", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LONG_ENOUGH,
            check=False,
            **options,
        )
        assert done.returncode == code, f"det {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.errors = done.stderr
        return done.stdout

    def keep_token(self) -> None:
        """Put the owner's token where a login of the client would have left it."""
        entry = {"active_user": self.served.owner, "tokens": {self.served.owner: self.served.token}}
        path = self.config / "determined" / "auth.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"version": 2, "masters": {self.served.url: entry}}))
        path.chmod(0o600)

    def run(self, program: Path | str, *words: str) -> str:
        """What a program prints that runs in the client's environment."""
        done = subprocess.run(
            [self.venv / "bin" / "python", program, *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LONG_ENOUGH,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def python(self, code: str) -> Any:
        """Run code that ends by printing JSON; ``sess``, ``bindings`` and ``client`` are there."""
        prelude = (
            "import json, warnings; warnings.simplefilter('ignore')\n"
            "from determined.common import api\n"
            "from determined.common.api import bindings\n"
            "from determined.experimental import client\n"
            f"sess = api.Session({self.served.url!r}, {self.served.owner!r}, {self.served.token!r}, None)\n"
        )
        return json.loads(self.run("-c", prelude + code).splitlines()[-1])


@pytest.fixture
def published(determined_venv: Path, served: Served, tmp_path: Path) -> Published:
    """Logged in by the token that the master puts where the client looks for it."""
    client = Published(determined_venv, served, tmp_path / "user")
    client.keep_token()
    return client


@pytest.fixture
def running(determined_venv: Path, tmp_path: Path) -> Iterator[Published]:
    """As ``published``, but the master runs jobs, and speaks TLS as it does beyond loopback."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "site.yaml").write_text("master: {tls: on}\n")
    master = Running(home)
    try:
        client = Published(determined_venv, master, tmp_path / "user")
        client.keep_token()
        client.env["DET_MASTER_CERT_FILE"] = str(home / "master.pem")
        yield client
    finally:
        with contextlib.suppress(DethpcError):  # it may be over, or never have been
            Session(MasterFinder(str(home / "master.json")), master.token).post("/api/v1/experiments/1/kill")
        master.stop()


def launched(
    task_id: str, kind: TaskKind = TaskKind.COMMAND, *, details: Mapping[str, Any] | None = None, **fields: Any
) -> Task:
    """A task that somebody launched, and that has ended."""
    config = task_config.load("entrypoint: ls -l", defaults={"resources": {"resource_pool": "default"}}).config
    settings = TaskSettings(config.of_job().to_json(), details=details or {})
    values: dict[str, Any] = {
        "state": State.COMPLETED,
        "created_at": 1.0,
        "ended_at": 2.0,
        "name": "Command (ls -l)",
        "slots": 1,
    }
    values |= {"owner": "me", "pool": "default", "config": settings.to_json(), "queue_id": task_id}
    return Task(id=task_id, kind=kind, **{**values, **fields})
