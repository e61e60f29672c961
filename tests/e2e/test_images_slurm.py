"""Trials that train inside an image of a registry, on a real Slurm: pulled by a job, once, and kept from then on."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests import folders
from tests.containers_root import debian_root
from tests.e2e.conftest import TRAIN, User
from tests.e2e.test_containers_slurm import TOGETHER
from tests.e2e.test_slurm import final_state, slurm_command, user_of
from tests.registries import RealRegistry, needs_registry, registry, tar
from tests.unix_user import UnixUser
from tests.waiting import wait_until

pytestmark = needs_registry

INSIDE = f"import os\nprint('INSIDE', os.environ.get('OF_IMAGE'), os.path.exists('/moved'), flush=True)\n{TRAIN}"
"""Says which image it trains in: variables of the image are seen there."""

_LEFT_OUT = ("./usr/share", "./var", "./usr/lib/x86_64-linux-gnu/perl-base", "./usr/lib/x86_64-linux-gnu/gconv")


def packed() -> bytes:
    """A layer with a Debian in which Python runs, and little besides."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        wanted = lambda member: None if member.name.startswith(_LEFT_OUT) else member  # noqa: E731
        archive.add(debian_root(), arcname=".", filter=wanted)
    return out.getvalue()


@pytest.fixture(scope="module")
def debian() -> bytes:
    return packed()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """Of the shared private Slurm, whose pool has containers of Charliecloud, and of Apptainer for those that ask."""
    if shutil.which("ch-run") is None:
        pytest.skip("charliecloud is not installed: scripts/packages.sh")
    options = ["--userns"] if os.geteuid() == 0 else []  # this machine's root lacks CAP_SYS_RESOURCE
    offered: list[dict[str, Any]] = [{"runtime": "charliecloud"}, {"runtime": "apptainer", "options": options}]
    with user_of(slurm, tmp_path, pools={"main": {"container": offered}}) as user:
        user.write("context/train.py", INSIDE)
        yield user


def create(user: User, name: str, source: RealRegistry, **more: Any) -> int:
    environment = {"image": name, "registry_auth": source.auth(), **more.pop("environment", {})}
    return user.create(environment=environment, **more)


def pulls(user: User) -> list[str]:
    """Jobs that pull, as Slurm lists them."""
    listed = slurm_command(user, "squeue", "--me", "--noheader", "--states=RUNNING", "--format=%i %j").splitlines()
    return [line.split()[0] for line in listed if "Image-pull" in line]


def digest_of(user: User, experiment: int) -> str:
    (trial,) = user.trials(experiment)
    return str(user.api("GET", f"/api/v1/trials/{trial['id']}")["trial"]["image"])


@pytest.mark.parametrize("runtime", ["charliecloud", pytest.param("apptainer", marks=pytest.mark.everything)])
def test_a_trial_trains_in_a_pulled_image_and_goes_on_in_the_same_after_its_tag_moved(
    user: User, source: RealRegistry, debian: bytes, runtime: str
) -> None:
    if runtime == "apptainer" and not (shutil.which(runtime) and os.access("/dev/fuse", os.R_OK | os.W_OK)):
        pytest.skip("apptainer starts no .sif here")
    name = f"{source.host}/{runtime}/train:1"
    first = source.push(f"{runtime}/train", "1", [debian], env=["OF_IMAGE=first"])
    environment = {"container_runtime": runtime}
    plain = user.create(environment={"container_runtime": "none"}, hyperparameters={"lr": 0.1, "steps": 20})
    held = create(user, name, source, environment=environment, hyperparameters={"lr": 0.1, "steps": 20, "hold": 7})
    assert f"python3 is that of image {name}" in user.errors
    user.wait_steps(held, 7)
    user.det("experiment", "pause", str(held))
    user.wait_state(held, "PAUSED")
    moved = source.push(f"{runtime}/train", "1", [debian, tar({"moved": "x"})], env=["OF_IMAGE=second"])
    user.det("experiment", "activate", str(held))
    user.wait_state(held, "COMPLETED")
    user.wait_state(plain, "COMPLETED")
    log = user.log(held)
    assert f"waits for image {name}: its pull is queued" in log and "starting at step 7" in log
    assert log.count("INSIDE first False") == 2 and digest_of(user, held) == first
    assert final_state(log) == final_state(user.log(plain))
    if runtime == "charliecloud":
        forced = create(user, name, source, environment={**environment, "force_pull_image": True})
        user.wait_state(forced, "COMPLETED")
        assert "INSIDE second True" in user.log(forced) and digest_of(user, forced) == moved


@pytest.mark.everything
def test_two_nodes_train_in_a_pulled_image(user: User, source: RealRegistry, debian: bytes) -> None:
    source.push("two/train", "1", [debian])
    user.write("context/together.py", TOGETHER)
    shape: dict[str, Any] = {
        "resources": {"slots_per_trial": 2, "resource_pool": "main"},
        "slurm": {"slots_per_node": 1},
        "entrypoint": ["python3", "together.py"],
    }
    held = create(user, f"{source.host}/two/train:1", source, hyperparameters={"steps": 10, "hold": 5}, **shape)
    user.wait_steps(held, 5)
    user.det("experiment", "pause", str(held))
    user.wait_state(held, "PAUSED")
    user.det("experiment", "activate", str(held))
    user.wait_state(held, "COMPLETED")
    assert user.log(held).count("starting at step 5") == 2
    assert len(source.requests("GET", "/v2/two/train/blobs/")) == 2, (
        "the configuration and one layer, once for both nodes"
    )


@pytest.mark.parametrize("runtime", ["podman", pytest.param("charliecloud", marks=pytest.mark.everything)])
def test_an_ordinary_user_pulls_and_trains(
    slurm: Cluster, ordinary: UnixUser, source: RealRegistry, debian: bytes, runtime: str
) -> None:
    if shutil.which({"podman": "podman", "charliecloud": "ch-run"}[runtime]) is None:
        pytest.skip(f"{runtime} is not installed: scripts/packages.sh")
    container: dict[str, Any] = {"runtime": runtime}
    if runtime == "podman":
        container["binary"] = str(ordinary.folder / "podman")
    folder = Path(tempfile.mkdtemp(dir=ordinary.folder))
    folder.chmod(0o755)
    source.push(f"ordinary/{runtime}", "1", [debian], env=["OF_IMAGE=first"])
    with user_of(slurm, folder, ordinary, pools={"main": {"container": container}}) as user:
        user.write("context/train.py", INSIDE)
        held = create(user, f"{source.host}/ordinary/{runtime}:1", source, hyperparameters={"lr": 0.1, "steps": 3})
        user.wait_state(held, "COMPLETED")
        assert "INSIDE" in user.log(held)
        image = Path(user.api("GET", "/api/v1/images")["images"][0]["path"])
        assert image.stat().st_uid == ordinary.uid and "image.json" not in {
            file.name for file in folders.files(user.home / "runs")
        }


def test_five_trials_need_one_pull_and_the_password_is_nowhere_but_with_their_configurations(
    user: User, source: RealRegistry, debian: bytes
) -> None:
    source.push("five/train", "1", [debian])
    name, secret = f"{source.host}/five/train:1", source.password.encode()
    made = [create(user, name, source, hyperparameters={"lr": 0.1, "steps": 2}) for _ in range(5)]
    told = slurm_command(user, "scontrol", "show", "job", "--details")
    for path in Path("/proc").glob("[0-9]*"):
        for file in ("cmdline", "environ"):
            try:
                told += (path / file).read_bytes().decode(errors="replace")
            except OSError:  # it has ended
                continue
    for experiment in made:
        user.wait_state(experiment, "COMPLETED")
        assert "INSIDE" in user.log(experiment)
    assert len(source.requests("GET", "/v2/five/train/blobs/")) == 2
    assert source.password not in told
    wait_until(lambda: "image.json" not in {file.name for file in folders.files(user.home / "runs")})
    where = {file.name for file, content in folders.contents(user.home) if secret in content}
    assert where <= {"dethpc.db", "dethpc.db-wal", "changes.jsonl"}


def test_a_pull_that_is_cancelled_is_begun_again_and_the_trial_starts(
    user: User, source: RealRegistry, debian: bytes
) -> None:
    source.push("cancelled/train", "1", [debian])
    source.process.send_signal(signal.SIGSTOP)  # it takes connections, and answers none
    try:
        experiment = create(user, f"{source.host}/cancelled/train:1", source, hyperparameters={"lr": 0.1, "steps": 2})
        wait_until(lambda: pulls(user))
        (first,) = pulls(user)
        subprocess.run(["scancel", first], env=user.env, check=True)
        wait_until(lambda: pulls(user) not in ([], [first]))
    finally:
        source.process.send_signal(signal.SIGCONT)
    user.wait_state(experiment, "COMPLETED")
    (trial,) = user.trials(experiment)
    assert trial["restarts"] == 0 and "INSIDE" in user.log(experiment)


def test_an_image_without_python_and_one_that_is_not_there_end_their_trials_at_once(
    user: User, source: RealRegistry
) -> None:
    source.push("bare", "1", [tar({"usr/bin/perl": "x"})])
    bare = create(user, f"{source.host}/bare:1", source, max_restarts=3)
    missing = create(user, f"{source.host}/missing:9", source, max_restarts=3)
    for experiment, words in ((bare, "has no python3; runs need Python 3.9"), (missing, "404 MANIFEST_UNKNOWN")):
        user.wait_state(experiment, "ERROR")
        (trial,) = user.trials(experiment)
        about = user.api("GET", f"/api/v1/trials/{trial['id']}")["trial"]
        assert words in about["reason"] and about["restarts"] == 0, json.dumps(about)
