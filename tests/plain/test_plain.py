"""Scripts in the shape of public ones, run both ways: by plain sbatch, and as the entrypoint of a trial.

Both see the same environment, but for the variables in docs/differences.csv, and have the same ranks on the same devices, the same
signals, results and exit code.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.shape import NodeGroup, Shape
from dethpc.deploy.slurm_dev import Cluster
from dethpc.domain.environment import goes_along
from dethpc.scheduler.slurm.hostlist import expand
from tests.cluster.fixtures import private_cluster
from tests.conftest import ROOT
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of
from tests.waiting import wait_until

SCRIPTS = Path(__file__).parent / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.sbatch"))
ARGUMENTS = {"18-functions": ["one", "two three"]}
SHAPE = Shape(
    groups=(NodeGroup("n", 4, {"": 4}), NodeGroup("k", 1, {"3090": 2, "v100": 2})),
    partitions={"main": "Default=YES Nodes=n[0-3]", "kinds": "Nodes=k0"},
)
SHELL = {
    "BASH_FUNC_module%%": "() {  echo \"module $*\" >>\"$PLAIN_OUT/results\"\n}",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip

DIFFERENCES = {row["variable"]: row["reason"] for row in csv.DictReader((ROOT / "docs/differences.csv").open())}
"""Variables of the environment that may differ, each with its reason."""

OTHERWISE = frozenset(
    "PLAIN_OUT SLURM_TASK_PID SLURM_SRUN_COMM_PORT SLURM_STEP_LAUNCHER_PORT SLURM_JOB_START_TIME SLURM_JOB_END_TIME".split()
)
"""Variables whose values differ between any two jobs."""
GPUS = frozenset(
    "CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK SLURM_JOB_GPUS SLURM_STEP_GPUS".split()
)


@dataclass
class Ran:
    """One way of running a script, and what its processes wrote."""

    job_id: str
    exit_code: str
    probes: list[dict[str, Any]]
    results: list[str]

    def __post_init__(self) -> None:
        self.devices: dict[tuple[str, str], list[str]] = {}  # by job and node: a script may submit others
        for probe in self.probes:
            env = probe["env"]
            names = GPUS - ({"SLURM_JOB_GPUS"} if env["SLURM_NODEID"] != "0" else set())
            seen = {gpu for name in names for gpu in env.get(name, "").split(",") if gpu}
            where = env["SLURM_JOB_ID"], env["SLURMD_NODENAME"]
            self.devices[where] = sorted({*self.devices.get(where, ()), *seen}, key=int)

    def value(self, name: str, env: dict[str, str]) -> object:
        """What the variable says, whichever number, nodes, devices and folder the job was given."""
        value = env.get(name)
        if value is None or name in OTHERWISE:
            return value and "something"
        if name == "SLURM_JOB_GPUS" and env["SLURM_NODEID"] != "0":
            return "of the first node"
        if name in GPUS:
            devices = self.devices.get((env["SLURM_JOB_ID"], env["SLURMD_NODENAME"]), [])
            return [devices.index(gpu) if gpu in devices else "?" for gpu in filter(None, value.split(","))]
        if name in ("SLURM_JOB_ID", "SLURM_JOBID"):
            return value == self.job_id
        nodes = expand(env["SLURM_JOB_NODELIST"])
        with contextlib.suppress(ValueError):
            return [nodes.index(node) for node in expand(value)]
        return value.replace(env["PWD"], "PWD")

    def places(self) -> list[object]:
        """(kind of process, rank, node, devices) of each process."""
        found = []
        for probe in self.probes:
            env = probe["env"]
            rank = env["SLURM_PROCID"], env["SLURM_LOCALID"], env.get("SLURM_NTASKS")
            if probe["label"] in ("exclusive", "exact"):
                rank = env["SLURM_PROCID"], "-", "-"
            node = expand(env["SLURM_JOB_NODELIST"]).index(env["SLURMD_NODENAME"])
            found.append((probe["label"], rank, node, self.value("CUDA_VISIBLE_DEVICES", env)))
        return sorted(found, key=repr)


@dataclass
class Both:
    plain: Ran
    trial: Ran


pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from private_cluster(SHAPE)


@pytest.fixture(scope="module")
def ran(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    """Every script both ways, all of them at once."""
    folder = tmp_path_factory.mktemp("plain")
    shutil.copytree(SCRIPTS, folder / "scripts")
    with user_of(cluster, tmp_path_factory.mktemp("user")) as user:
        shutil.rmtree(user.folder / "context")
        shutil.copytree(SCRIPTS, user.folder / "context")
        user.env |= SHELL
        plain = {name: _sbatch(user, name, folder / "scripts", _out(folder, "plain", name)) for name in NAMES}
        trials = {name: _create(user, name, _out(folder, "trial", name)) for name in NAMES}
        found = {}
        for name in NAMES:
            user.wait_state(trials[name], "COMPLETED", "ERROR", "CANCELED")
            *_, job_id = user.runs_of(trials[name])
            found[name] = Both(
                _read(user, plain[name], folder / f"plain-{name}"), _read(user, job_id, folder / f"trial-{name}")
            )
        return found


def _out(folder: Path, way: str, name: str) -> Path:
    path = folder / f"{way}-{name}"
    path.mkdir()
    return path


def _sbatch(user: User, name: str, folder: Path, out: Path) -> str:
    env = shell(user, out)
    words = ["sbatch", "--parsable", f"--output={out}/log", f"{name}.sbatch", *ARGUMENTS.get(name, [])]
    return subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout.strip()


def shell(user: User, out: Path) -> dict[str, str]:
    """The environment of the user's shell, without what of it goes with no experiment, such as the size of the screen."""
    env = {name: value for name, value in user.env.items() if goes_along(name)}
    return env | {"PLAIN_OUT": str(out), "SLURM_CONF": user.env["SLURM_CONF"]}


def _create(user: User, name: str, out: Path) -> int:
    arguments = " ".join(f"'{word}'" for word in ARGUMENTS.get(name, []))
    user.env["PLAIN_OUT"] = str(out)
    searcher = {"name": "single", "metric": "loss"}
    return user.create(name=name, entrypoint=f"{name}.sbatch {arguments}".strip(), searcher=searcher)


def _read(user: User, job_id: str, out: Path) -> Ran:
    def ended() -> dict[str, str]:
        shown = subprocess.run(
            ["scontrol", "show", "job", job_id], env=user.env, capture_output=True, text=True, check=True
        ).stdout
        fields = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        return fields if fields["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") else {}

    fields = wait_until(ended)
    results = (out / "results").read_text().splitlines() if (out / "results").exists() else []
    probes = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    return Ran(job_id, fields["ExitCode"], probes, sorted(results))


@pytest.fixture(params=NAMES)
def both(request: pytest.FixtureRequest, ran: dict[str, Both]) -> Both:
    return ran[request.param]


def test_the_page_of_environments_shows_each_variable_that_may_differ_with_its_reason() -> None:
    page = (ROOT / "docs/environments.md").read_text()
    rows = re.findall(
        r"^\| (`.*`) \| (.*) \|$", page.partition("## Against plain sbatch")[2].partition("\n## ")[0], re.M
    )
    shown = {name: reason for names, reason in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == DIFFERENCES


def test_each_script_names_where_its_shape_comes_from() -> None:
    assert len(NAMES) >= 20
    for name in NAMES:
        assert (SCRIPTS / f"{name}.sbatch").read_text().splitlines()[1].startswith("# Shape of: "), name


def test_the_exit_code_and_what_the_script_writes_are_the_same(both: Both) -> None:
    assert both.trial.results == both.plain.results
    assert both.trial.exit_code == both.plain.exit_code


def test_ranks_have_the_same_places_and_devices(both: Both) -> None:
    assert both.trial.places() == both.plain.places()
    assert both.plain.probes


def test_the_environment_differs_in_named_variables_alone(both: Both) -> None:
    found = {}
    for plain, trial in _pairs(both):
        for name in sorted({*plain["env"], *trial["env"]} - set(DIFFERENCES) | {"SLURM_JOB_NAME"}):
            values = both.plain.value(name, plain["env"]), both.trial.value(name, trial["env"])
            if values[0] != values[1]:
                found[plain["label"], name] = values
    assert not found


def test_processes_have_the_same_signals_limits_and_standing(both: Both) -> None:
    for plain, trial in _pairs(both):
        assert _standing(trial) == _standing(plain)


def _standing(probe: dict[str, Any]) -> dict[str, Any]:
    """Without what docs/environments.md says of a trial's: its umask, and that a script leads a session."""
    others = ("label", "env", "umask", "leads its session")
    standing = {key: value for key, value in probe.items() if key not in others}
    if (
        "OMPI_COMM_WORLD_RANK" in probe["env"]
    ):  # with plain Slurm, too, its daemon blocks these now and then as it forks
        standing["blocked"] = f"{int(standing['blocked'], 16) & ~_OF_OPEN_MPI:016x}"
    return standing


_OF_OPEN_MPI = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM))


def _pairs(both: Both) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The same process of either way, where that can be told."""

    def key(probe: dict[str, Any]) -> tuple[str, str]:
        return probe["label"], probe["env"]["SLURM_PROCID"]

    keys = [key(probe) for probe in both.plain.probes]
    trial = {key(probe): probe for probe in both.trial.probes}
    return [(probe, trial[key(probe)]) for probe in both.plain.probes if keys.count(key(probe)) == 1]
