"""Trials in containers on a real Slurm, by Apptainer, Charliecloud and Podman, on an unpacked Debian: those of root, and those of
an ordinary user of the machine, whose master and jobs are that user's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dethpc.deploy.slurm_dev import Cluster
from tests import processes
from tests.containers_root import debian_root
from tests.e2e.conftest import SLEEPS, User
from tests.e2e.test_slurm import final_state, user_of
from tests.unix_user import UnixUser
from tests.waiting import wait_until

PROGRAMS = {"apptainer": "apptainer", "charliecloud": "ch-run", "podman": "podman"}

TELLS = """
import json, os, pathlib, time
import determined as det

def tried(path):
    try:
        pathlib.Path(path, "written").write_text("x")
        return "written"
    except OSError as error:
        return error.strerror

with det.core.init() as core:
    seen = {
        "debian": pathlib.Path("/etc/debian_version").read_text().strip(),
        "uid": os.getuid(), "home": os.path.isdir(os.environ["HOME"]), "cwd": sorted(os.listdir()),
        "path": os.environ["PATH"], "odd": os.environ["ODD"], "hook": os.environ.get("CONDA_PREFIX"),
        "read": pathlib.Path("/data/in/file").read_text(), "ro": tried("/data/in"), "rw": tried("/data/out"),
        "linked": pathlib.Path("mine/file").read_text(), "linked ro": tried("mine"),
        "shm": tried("/dev/shm") if not os.path.exists("/dev/shm/written") else "written",
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "hooked": os.path.exists("hooked"),
        "home of dethpc": tried(os.path.dirname(os.environ["HARNESS"])),
    }
    print("SEEN", json.dumps(seen), flush=True)
    core.train.report_validation_metrics(1, {"validation_loss": 1.0})
"""

TOGETHER = '''
"""One process on each of two nodes; they meet at every step, as torch.distributed does, by sockets of the standard library."""
import hashlib, json, os, sys, time
import determined as det
from determined import core as det_core

info = det.get_cluster_info()
rank, size = info.container_rank, len(info.container_addrs)
steps, hold = info.trial.hparams["steps"], info.trial.hparams["hold"]
together = det_core.DistributedContext(
    rank=rank, size=size, local_rank=0, local_size=1, cross_rank=rank, cross_size=size, chief_ip=info.container_addrs[0]
)
with det_core.init(distributed=together) as core:
    state, start = "seed", 0
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            kept = json.loads((path / "state.json").read_text())
            state, start = kept["state"], kept["step"]
    print(f"starting at step {start}", flush=True)
    for step in range(start, steps):
        parts = together.allgather(f"{rank}:{step}")
        state = hashlib.sha256((state + "".join(parts)).encode()).hexdigest()
        if rank == 0:
            core.train.report_training_metrics(steps_completed=step + 1, metrics={"loss": 1.0})
        stop = core.preempt.should_preempt()
        while step + 1 == hold and not stop and info.latest_checkpoint is None:
            time.sleep(0.05)
            stop = core.preempt.should_preempt()
        if stop or step + 1 == steps:
            if rank == 0:
                with core.checkpoint.store_path({"steps_completed": step + 1}) as (path, uuid):
                    (path / "state.json").write_text(json.dumps({"state": state, "step": step + 1}))
            if stop and step + 1 < steps:
                print(f"stopping at step {step + 1}", flush=True)
                sys.exit(0)
    if rank == 0:
        core.train.report_validation_metrics(steps_completed=steps, metrics={"validation_loss": 1.0})
        print(f"final state {state}", flush=True)
'''


@pytest.fixture(params=["apptainer", pytest.param("charliecloud", marks=pytest.mark.everything), "podman"])
def runtime(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(PROGRAMS[name]) is None:
        pytest.skip(f"{name} is not installed: scripts/packages.sh")
    return name


@pytest.fixture(params=[pytest.param("root", marks=pytest.mark.everything), "ordinary"])
def user(slurm: Cluster, tmp_path: Path, runtime: str, request: pytest.FixtureRequest) -> Iterator[User]:
    """Of the shared private Slurm, whose pool has containers of one runtime."""
    container: dict[str, Any] = {"runtime": runtime, "image": str(debian_root()), "variables": ["HARNESS"]}
    if request.param == "root":
        if runtime == "podman":
            pytest.skip("podman is for ordinary users")
        if runtime == "apptainer" and os.geteuid() == 0:
            container["options"] = ["--userns"]  # this machine's root lacks CAP_SYS_RESOURCE
        with user_of(slurm, tmp_path, pools={"main": {"container": container}}) as user:
            yield user
        return
    who: UnixUser = request.getfixturevalue("ordinary")
    container["image"] = str(who.folder / "image")
    if runtime == "podman":
        container["binary"] = str(who.folder / "podman")
    folder = Path(tempfile.mkdtemp(dir=who.folder))
    folder.chmod(0o755)
    with user_of(slurm, folder, who, pools={"main": {"container": container}}) as user:
        yield user


def test_a_trial_in_a_container_pauses_and_goes_on(user: User) -> None:
    plain = user.create(environment={"container_runtime": "none"}, hyperparameters={"lr": 0.1, "steps": 30})
    held = user.create(hyperparameters={"lr": 0.1, "steps": 30, "hold": 12})
    user.wait_steps(held, 12)
    user.det("experiment", "pause", str(held))
    user.wait_state(held, "PAUSED")
    user.det("experiment", "activate", str(held))
    for experiment in (plain, held):
        user.wait_state(experiment, "COMPLETED")
    assert "stopping at step 12" in user.log(held) and "starting at step 12" in user.log(held)
    assert final_state(user.log(held)) == final_state(user.log(plain))


def test_two_nodes_in_containers_pause_and_go_on(user: User) -> None:
    user.write("context/together.py", TOGETHER)
    shape: dict[str, Any] = {
        "resources": {"slots_per_trial": 2, "resource_pool": "main"},
        "slurm": {"slots_per_node": 1},
        "entrypoint": ["python3", "together.py"],
    }
    straight = user.create(hyperparameters={"steps": 10, "hold": 0}, **shape)
    held = user.create(hyperparameters={"steps": 10, "hold": 5}, **shape)
    user.wait_steps(held, 5)
    user.det("experiment", "pause", str(held))
    user.wait_state(held, "PAUSED")
    user.det("experiment", "activate", str(held))
    for experiment in (straight, held):
        user.wait_state(experiment, "COMPLETED")
    assert user.log(held).count("starting at step 5") == 2
    assert final_state(user.log(held)) == final_state(user.log(straight))


def test_a_trial_sees_its_mounts_its_variables_and_nothing_of_the_nodes_shell(user: User, runtime: str) -> None:
    folder = user.folder / 'data "of", all'
    subprocess.run(["mkdir", "-p", folder / "in", folder / "out"], check=True, **user.become)
    (folder / "in" / "file").write_text("there")
    odd = "a\nb'\"$c `d` \\ \x1b,:=%s"
    user.write("context/train.py", TELLS)
    user.write(
        "context/startup-hook.sh", "touch hooked; test -e /etc/debian_version && grep -q bookworm /etc/os-release"
    )
    user.env["CONDA_PREFIX"] = "/of/the/shell"
    experiment = user.create(
        environment={"environment_variables": [f"ODD={odd}", f"HARNESS={user.home}/harness/x"]},
        resources={"shm_size": "16m", "slots_per_trial": 1},
        bind_mounts=[
            {"host_path": str(folder / "in"), "container_path": "/data/in", "read_only": True},
            {"host_path": str(folder / "out"), "container_path": "/data/out"},
            {"host_path": str(folder / "in"), "container_path": "mine", "read_only": True},
        ],
    )
    assert "no effect" not in user.errors
    user.wait_state(experiment, "COMPLETED")
    (line,) = [line for line in user.log(experiment).splitlines() if "SEEN" in line]
    seen = json.loads(line.partition("SEEN ")[2])
    assert (
        seen["debian"].startswith("12")
        and seen["uid"] == user.become.get("user", os.getuid())
        and seen["home"]
        and seen["hooked"]
    )
    assert seen["odd"] == odd and seen["hook"] is None and seen["path"].startswith("/usr/local/sbin:")
    assert (seen["read"], seen["linked"]) == ("there", "there")
    assert (seen["ro"], seen["linked ro"], seen["rw"]) == ("Read-only file system", "Read-only file system", "written")
    assert seen["home of dethpc"] == "Read-only file system" and seen["shm"] == "written"
    assert seen["visible"] and "," not in seen["visible"]
    assert (folder / "out" / "written").exists() and not (folder / "in" / "written").exists()
    assert Path("/dev/shm/written").exists() == (runtime != "podman"), "one of its own, of that size"
    Path("/dev/shm/written").unlink(missing_ok=True)


def test_a_kill_leaves_no_process_and_no_mount(user: User, tmp_path: Path) -> None:
    user.write("context/train.py", SLEEPS)
    before = mounts(tmp_path)
    experiment = user.create()
    wait_until(lambda: sleepers_inside() != [])
    user.det("experiment", "kill", str(experiment))
    user.wait_state(experiment, "CANCELED")
    wait_until(lambda: sleepers_inside() == [] and not runtimes(user))
    assert mounts(tmp_path) == before


def mounts(tmp_path: Path) -> list[str]:
    """Lines of /proc/mounts, but for file systems that other tests have mounted in folders of theirs meanwhile."""
    folders = tmp_path.parents[1] if tmp_path.parent.name.startswith("popen-") else tmp_path.parent
    lines = Path("/proc/mounts").read_text().splitlines()
    places = {line: Path(line.split()[1]) for line in lines}
    return [line for line in lines if tmp_path in (at := places[line], *at.parents) or folders not in at.parents]


def sleepers_inside() -> list[int]:
    found = []
    for path in processes.files("cmdline"):
        try:
            if path.read_bytes() == b"sleep\0" + b"98765\0":
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def runtimes(user: User) -> list[str]:
    """Processes of containers of this user's runs."""
    told = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if str(user.home) in line and ("exec" in line or "ch-run" in line)]


def test_what_a_runtime_cannot_do_is_refused_where_the_experiment_is_created(user: User, runtime: str) -> None:
    user.config(environment={"image": "Determined AI/environments:cuda"})
    user.det("experiment", "create", "config.yaml", "context", code=None)
    assert "environment.image: 'Determined AI/environments:cuda'" in user.errors
    user.config(
        environment={"setup": "module load x"},
        bind_mounts=[{"host_path": "/srv", "container_path": "/x", "propagation": "rshared"}],
        resources={"devices": ["/dev/a:/dev/b:r"]},
    )
    user.det("experiment", "create", "config.yaml", "context", code=None)
    always = ["environment.setup", "startup-hook.sh"]
    words = ["bind_mounts.propagation", "podman, enroot, pyxis can", "resources.devices.mode"]
    for each in [*always, *([] if runtime == "podman" else words)]:
        assert each in user.errors, user.errors
    (user.folder / "no-python" / "usr/bin").mkdir(parents=True)
    user.config(environment={"image": str(user.folder / "no-python")})
    user.det("experiment", "create", "config.yaml", "context", code=None)
    assert "has no python3" in user.errors
    user.config(environment={"container_runtime": "enroot"})
    user.det("experiment", "create", "config.yaml", "context", code=None)
    assert f"one of {runtime}, none" in user.errors


def test_the_doctor_starts_the_smallest_container(user: User, runtime: str, tmp_path: Path) -> None:
    site = user.home / "site.yaml"
    other = "charliecloud" if runtime == "podman" else "podman"
    broken = {"runtime": other, "binary": "/nowhere/program"}
    config = yaml.safe_load(site.read_text())
    config["pools"]["main"]["container"] = [config["pools"]["main"]["container"], broken]
    site.write_text(yaml.safe_dump(config))
    said = " ".join(user.det("doctor", "--check-nodes", code=None).split())
    assert f"{runtime} starts a container on n" in said, said
    assert f"{other} starts no container on n" in said and "/nowhere/program" in said
