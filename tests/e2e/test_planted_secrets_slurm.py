"""A secret of each kind goes through a real run, and is then looked for everywhere: by another user, and by the owner on disk."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.client.nouns import tokens, users
from dethpc.deploy.slurm_dev import Cluster
from tests import folders
from tests.e2e.conftest import User
from tests.e2e.test_slurm import jobs, slurm_command, user_of
from tests.waiting import wait_until

NOBODY = 65534
KINDS = (
    "owner token", "run token", "access token", "session", "password", "DET_PASS", "database password",
    "storage key", "registry password", "address password", "environment variable", "prologue",
    "shell variable",
)  # fmt: skip

OF_THE_OWNER = {
    r"home/token": "the owner token itself",
    r"home/site\.yaml": "what the site or the user wrote",
    r"home/dethpc\.db(-wal|-shm|-journal)?": "configurations, whole: runs are made from them",
    r"home/experiments/\d+/changes\.jsonl": "the same, as the way back",
    r"home/environments/[\w-]+": "what the shell exported, for all runs of its experiment",
    r"home/runs/[\d.]+/spec\.json": "the run's token and configuration, for its job",
    r"home/runs/[\d.]+/attempts/\d+/info-\d+\.json": "the same, for its workers",
    r"home/runs/[\d.]+/job\.sbatch": "the prologue of the site, as it was written",
    r"slurm/(state|spool)/.*": "the same script, in Slurm's own keeping: root's, or SlurmUser's",
    r"work/config\.yaml": "what the user wrote",
}
"""Files that may hold a secret, each 0600 in folders that are the owner's alone, and why."""

TRAIN = """
import os, time
from dethpc import core
assert os.environ["WANDB_API_KEY"].startswith("planted") and os.environ["SITE_API_KEY"], "the shell's and the site's"
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 0.5})
    print(sorted(name for name in os.environ if name.startswith("DET")), os.environ["DET_EXPERIMENT_CONFIG"], flush=True)
    print("holding", flush=True)
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.05)
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
        (path / "w").write_text("w")
"""

LOOK = r"""
import os, subprocess, sys
def show(data): sys.stdout.buffer.write(data + b"\n")
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try: show(open(f"/proc/{pid}/{name}", "rb").read())
        except OSError: pass
for root in sys.argv[1:]:
    for here, _, names in os.walk(root):
        show(os.fsencode(here))
        for name in names:
            try:
                if os.path.isfile(os.path.join(here, name)): show(open(os.path.join(here, name), "rb").read(1 << 22))
            except OSError: pass
show(b"looked")
"""


@pytest.fixture
def planted(slurm: Cluster) -> Iterator[tuple[User, dict[str, str]]]:
    """A user whose folders other users of the machine can reach as far as their modes let them."""
    secret = {kind: f"planted{secrets.token_hex(12)}" for kind in KINDS}
    top = Path(tempfile.mkdtemp(prefix="planted-", dir="/tmp"))
    os.chmod(top, 0o755)
    pools = {"main": {"prologue": [f"export SITE_API_KEY={secret['prologue']}", f"export GO={top}/go"]}}
    try:
        with user_of(slurm, top, pools=pools) as user:
            os.chmod(user.folder, 0o700)
            os.chmod(user.home / "site.yaml", 0o600)
            user.env |= {"DET_PASS": secret["DET_PASS"], "PGPASSWORD": secret["database password"]}
            yield user, secret
    finally:
        shutil.rmtree(top)


def seen(text: str | bytes, secret: dict[str, str]) -> set[str]:
    data = text.encode() if isinstance(text, str) else text
    return {kind for kind, value in secret.items() if value.encode() in data}


def on_disk(root: Path, name: str, secret: dict[str, str]) -> dict[str, set[str]]:
    """Files below ``root`` that hold secrets."""
    held = {path: seen(content, secret) for path, content in folders.contents(root) if not path.is_symlink()}
    return {f"{name}/{path.relative_to(root)}": kinds for path, kinds in held.items() if kinds}


def answers(user: User, experiment: int, trial: int) -> str:
    """All that the command line and the REST API say about it."""
    found = []
    for words in (
        ["experiment", "config", experiment], ["experiment", "describe", experiment], ["experiment", "list", "--json"],
        ["experiment", "logs", experiment], ["trial", "describe", trial], ["trial", "logs", trial], ["master", "config"],
        ["master", "info"], ["master", "logs"], ["job", "list"], ["token", "list"], ["experiment", "list-checkpoints", experiment],
    ):  # fmt: skip
        found.append(user.det(*map(str, words)) + user.errors)
    for path in (
        f"/api/v1/experiments/{experiment}", "/api/v1/experiments", f"/api/v1/experiments/{experiment}/trials",
        f"/api/v1/trials/{trial}", f"/api/v1/experiments/{experiment}/checkpoints", "/api/v1/master/config", "/api/v1/users",
        "/api/v1/tokens", "/api/v1/job-queues-v2", "/api/v1/resource-pools",
    ):  # fmt: skip
        found.append(json.dumps(user.api("GET", path)))
    return "\n".join(found)


def test_a_secret_of_each_kind_is_nowhere_but_in_files_of_its_owner(
    planted: tuple[User, dict[str, str]], slurm: Cluster
) -> None:
    user, secret = planted
    user.write("context/train.py", TRAIN)
    user.det("experiment", "list")  # the master's shell is another one
    user.env["WANDB_API_KEY"] = secret["shell variable"]
    experiment = user.create(
        environment={
            "environment_variables": [f"MY_API_TOKEN={secret['environment variable']}"],
            "registry_auth": {"username": "u", "password": secret["registry password"]},
        },
        data={
            "store": {"secret_key": secret["storage key"]},
            "url": f"https://u:{secret['address password']}@data.example",
        },
    )
    session = user.session()
    me = users.me(session)
    session.post(f"/api/v1/users/{me['id']}/password", json=secret["password"])
    secret["owner token"] = (user.home / "token").read_text().strip()
    secret["access token"] = tokens.create(session, me["id"])["token"]
    login = {"username": me["username"], "password": secret["password"], "isHashed": False}
    secret["session"] = session.post("/api/v1/auth/login", json=login)["token"]
    wait_until(lambda: "holding" in user.log(experiment))
    (trial,) = (int(found["id"]) for found in user.trials(experiment))
    (spec,) = (json.loads(path.read_text()) for path in user.home.glob("runs/*/spec.json"))
    secret["run token"] = spec["token"]
    secret |= {
        f"spec's {name}": value for name, value in spec.items() if "secret" in name and isinstance(value, str) and value
    }

    (job,) = jobs(user)
    strangers = b""
    if os.getuid() == 0:
        other: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
        roots = [str(user.home.parent), str(slurm.folder), *map(str, Path("/tmp").glob("dethpc-*"))]
        looked = subprocess.run(["/usr/bin/python3", "-c", LOOK, *roots], capture_output=True, check=True, **other)
        assert looked.stdout.endswith(b"looked\n")
        strangers += looked.stdout
        for words in (
            ["ps", "-eo", "args"], ["scontrol", "show", "job", "-dd", job], ["squeue", "-o", "%all"], ["squeue", "-O", "ALL"],
            ["scontrol", "write", "batch_script", job, "-"], ["scontrol", "show", "config"],
        ):  # fmt: skip
            strangers += subprocess.run(words, env={**slurm.env}, capture_output=True, **other).stdout
    assert seen(strangers, secret) == set()
    assert seen(slurm_command(user, "scontrol", "show", "job", "-dd", job), secret) == set()
    assert seen(slurm_command(user, "squeue", "-o", "%all"), secret) == set()
    assert seen(answers(user, experiment, trial), secret) == set()

    master = Path(f"/proc/{user.master()['pid']}/environ").read_bytes()
    assert seen(master, secret) == {"database password"}, "it needs that one alone"
    (user.home.parent / "go").touch()
    user.wait_state(experiment, "COMPLETED")
    log = user.log(experiment)
    assert (
        "MY_API_TOKEN" not in log.split("holding")[0].split("{")[0] and "********" in log and seen(log, secret) == set()
    )

    for root, name in ((user.home, "home"), (user.folder, "work"), (slurm.folder, "slurm")):
        for path, kinds in on_disk(root, name, secret).items():
            assert any(re.fullmatch(pattern, path) for pattern in OF_THE_OWNER), f"{path} holds {kinds}"
            assert kinds.isdisjoint({"password", "session", "access token", "DET_PASS", "database password"}), (
                f"{path} holds {kinds}"
            )
            if name == "home":
                assert (root / path.partition("/")[2]).stat().st_mode & 0o077 == 0, path
    left = [path.name for path in Path("/tmp").glob("dethpc-*")]
    assert not [name for name in left if f"{spec['cluster_id'][:8]}-{spec['run']}." in name]
