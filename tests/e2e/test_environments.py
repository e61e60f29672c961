"""A job runs in the environment of the shell that created its experiment, whichever shell's master submits it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import folders
from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import wait_until

TELLS = """
import json, os, subprocess, sys, time
import determined as det
seen = {name: os.environ.get(name) for name in ("PATH", "CONDA_DEFAULT_ENV", "MINE", "MODULEPATH", "ONLY_C", "DISPLAY", "SECOND")}
said = subprocess.run(["bash", "-c", "greet"], capture_output=True, text=True).stdout
with det.core.init() as core:
    print("SEEN", json.dumps([sys.executable, said, seen]), flush=True)
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.05)
    core.train.report_validation_metrics(1, {"loss": 1.0})
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[User]:
    """``det`` as a module of the site: its interpreter is no user's, and is not on PATH."""
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="2")
    del user.env["PYTHONPATH"]
    folder = Path(sys.executable).parent
    user.env["PATH"] = ":".join(each for each in user.env["PATH"].split(":") if Path(each) != folder)
    user.write("context/train.py", TELLS)
    try:
        yield user
    finally:
        take_down(user)


def shell(user: User, name: str, **variables: str) -> dict[str, str]:
    """The environment of a shell with a Python environment of its own."""
    venv = user.folder / "envs" / name
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    if not (venv / "pyvenv.cfg").exists():
        os.symlink(sys._base_executable, venv / "bin" / "python3")  # type: ignore[attr-defined]
        (venv / "pyvenv.cfg").write_text(f"home = {Path(sys._base_executable).parent}\n")  # type: ignore[attr-defined]
    greet = {"BASH_FUNC_greet%%": f'() {{  echo "from {name}\n{{}}"\n}}'}
    path = {"PATH": f"{venv}/bin:{user.env['PATH']}", "VIRTUAL_ENV": str(venv)}
    return {**user.env, **path, **greet, "CONDA_DEFAULT_ENV": name, "DISPLAY": ":7", **variables}


def det(user: User, env: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dethpc.cli", *words], cwd=user.folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def seen(user: User, trial: int) -> list[Any]:
    log = user.det("trial", "logs", str(trial))
    return [json.loads(line.partition("SEEN ")[2]) for line in log.splitlines() if "SEEN" in line][:1]


def test_an_environment_that_cannot_be_set_up_is_its_users_failure_and_one_that_is_gone_holds_its_experiment(
    site: User,
) -> None:
    env = shell(site, "one", GO="/", MINE="x")
    single = {"name": "single", "metric": "loss"}
    site.config(
        entrypoint=["python3", "train.py"], searcher=single, environment={"setup": "modul load cuda"}, max_restarts=None
    )
    det(site, env, "experiment", "create", "config.yaml", "context")
    none = {"python": f"{site.folder}/nowhere/bin/python3"}
    site.config(entrypoint=["python3", "train.py"], searcher=single, environment=none, max_restarts=0)
    said = det(site, env, "experiment", "create", "config.yaml", "context")
    assert f"environment.python: {none['python']} is not on this machine" in said

    site.config(entrypoint=["python3", "train.py"], searcher=single)
    det(site, env, "experiment", "create", "config.yaml", "context", "--paused")
    (file,) = [path for path in (site.home / "environments").iterdir() if path.name == site.experiment(3)["jobId"]]
    aside = file.rename(site.folder / "aside")
    det(site, env, "experiment", "activate", "3")
    wait_until(lambda: f"is missing: put {file} back from a backup" in site.log(3))
    assert site.experiment(3)["state"].endswith("QUEUED"), site.experiment(3)["state"]
    aside.rename(file)
    site.wait_state(3, "COMPLETED")
    assert seen(site, 3)[0][0] == f"{env['VIRTUAL_ENV']}/bin/python3"

    for number, words, runs in (
        (1, "environment.setup failed with exit code 127: modul load cuda (failed twice in the same way", 2),
        (2, f"environment.python: {none['python']} is not an interpreter on this node (after 0 restarts)", 1),
    ):
        site.wait_state(number, "ERROR")
        (trial,) = site.trials(number)
        assert words in trial["reason"], trial
        assert f"ERROR: dethpc: {words.partition(' (')[0]}" in det(
            site, env, "experiment", "logs", str(number), "--raw"
        )
        assert len(list((site.home / "runs").glob(f"{number}.*"))) == runs


def test_every_trial_gets_the_shell_that_created_its_experiment_whoever_submits_it(site: User) -> None:
    one = shell(site, "one", MINE="of\none \udcff", GO=str(site.folder / "go-one"), MODULEPATH="/modules")
    two = shell(site, "two", MINE="of two", GO=str(site.folder / "go-two"))
    three = shell(site, "three", MINE="of three", ONLY_C="c", GO="/", MODULEPATH="/others")
    space = {"lr": {"type": "categorical", "vals": [1, 2]}}
    grid = {"name": "grid", "metric": "loss", "max_concurrent_trials": 1}
    added = {"environment_variables": ["SECOND=added"]}
    site.config(entrypoint=["python3", "train.py"], searcher=grid, hyperparameters=space, environment=added)
    said = det(site, one, "experiment", "create", "config.yaml", "context")
    assert f"python3 is {site.folder}/envs/one/bin/python3" in said
    det(site, two, "experiment", "create", "config.yaml", "context")
    wait_until(lambda: len(site.trials(1)) == 1 and len(seen(site, 1)) == 1 and len(seen(site, 2)) == 1)

    site.kill_master()
    det(site, three, "experiment", "list")  # whose shell starts the next one
    for env in (one, two):
        Path(env["GO"]).touch()
    for number in (1, 2):
        site.wait_state(number, "COMPLETED")
    for number, env in ((1, one), (2, two)):
        trials = [int(trial["id"]) for trial in site.trials(number)]
        first, second = (seen(site, trial)[0] for trial in trials)
        assert first == second
        executable, greeted, variables = first
        assert executable == f"{env['VIRTUAL_ENV']}/bin/python3"
        assert greeted == f"from {env['CONDA_DEFAULT_ENV']}\n{{}}\n"
        assert variables["PATH"].startswith(f"{env['PATH']}") and variables["MINE"] == env["MINE"]
        assert variables["CONDA_DEFAULT_ENV"] == env["CONDA_DEFAULT_ENV"]
        assert variables["MODULEPATH"] == env.get("MODULEPATH")
        assert (variables["ONLY_C"], variables["DISPLAY"], variables["SECOND"]) == (None, None, "added")
        assert f"Python:        {env['VIRTUAL_ENV']}/bin/python3" in det(
            site, three, "experiment", "describe", str(number)
        )

    kept = list((site.home / "environments").iterdir())
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600, 0o600]
    det(site, three, "master", "down")
    det(site, three, "master", "rebuild", "--yes")
    assert f"{one['VIRTUAL_ENV']}/bin/python3" in det(site, three, "experiment", "describe", "1")
    det(site, three, "experiment", "delete", "1", "--yes")
    assert len(list((site.home / "environments").iterdir())) == 1
    assert not [path for path, content in folders.contents(site.home) if b"of\none" in content]
