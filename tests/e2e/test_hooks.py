"""Start-up hooks of a context, as a user on a login node brings them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User, make_user, take_down

HOOK = """#!/bin/sh
export PYTHONPATH=$PYTHONPATH:$PWD/extra HOOKVAR="of the hook"
cd inner
umask 027
"""
SEES = """
import extramod, os, socket
print("SEES", os.environ["HOOKVAR"], os.path.basename(os.getcwd()), oct(os.umask(0)), flush=True)
"""
JOB = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
echo "BATCH $HOOKVAR $(basename $PWD)"
srun bash -c 'echo "STEP $SLURM_NODEID $HOOKVAR $(basename $PWD)"'
"""
FAILS = """export HOOKVAR=1
ls /nonexistent/requirements.txt
echo hook end
"""


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    user = make_user(tmp_path, **slurm.env, DETHPC_SCHEDULER="slurm")
    try:
        yield user
    finally:
        take_down(user)
        subprocess.run(["scancel", "--me"], env=user.env, check=False)


def test_a_hook_on_slurm_hands_over_its_shell_or_fails_at_a_line(on_slurm: User) -> None:
    user = on_slurm
    user.write("context/inner/train.py", SEES)
    user.write("context/extra/extramod.py", "X = 1\n")
    user.write("context/job.sbatch", JOB)
    user.write("context/startup-hook.sh", HOOK)
    launcher = "python3 -m determined.launch.torch_distributed python3 train.py"
    wide = {"resources": {"slots_per_trial": 2}, "slurm": {"slots_per_node": 1}}
    command = user.create(entrypoint="python3 train.py")
    workers = user.create(entrypoint=launcher, **wide)
    script = user.create(entrypoint="job.sbatch")
    user.write("context/startup-hook.sh", FAILS)
    failing = user.create(entrypoint="python3 train.py")

    for experiment in (command, workers, script):
        user.wait_state(experiment, "COMPLETED", "ERROR")
    assert user.log(command).count("SEES of the hook inner 0o27") == 1, user.log(command)
    assert user.log(workers).count("SEES of the hook inner 0o27") == 2, user.log(workers)
    log = user.log(script)
    assert "BATCH of the hook inner" in log
    assert "STEP 0 of the hook inner" in log and "STEP 1 of the hook inner" in log, log

    user.wait_state(failing, "ERROR")
    (trial,) = user.trials(failing)
    words = "startup-hook.sh line 2 failed with exit code 2: ls /nonexistent/requirements.txt"
    assert trial["reason"].startswith(words), trial
    assert words in user.det("experiment", "describe", str(failing))
    assert "hook end" not in user.log(failing)


BLOG = {
    "entrypoint": "python step0-run.py --dataset=torch/cifar10 --dataset-download data --input-size 3 32 32 --epochs 5",
    "searcher": {"name": "grid", "metric": "val_loss", "max_length": 1},
    "hyperparameters": {"lr": {"type": "categorical", "vals": [1, 2, 3]}},
}
RUNS = """
import sys, timm
import determined as det
print("TIMM", timm.__file__, sys.argv[1], flush=True)
with det.core.init() as core:
    core.train.report_validation_metrics(1, {"val_loss": 1.0})
"""


@pytest.fixture
def trains_where_det_is(tmp_path: Path) -> Iterator[User]:
    """As README tells people: one virtual environment with ``det`` and what the training needs, active in the shell."""
    venv, wheels = tmp_path / "env", tmp_path / "wheels"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "timm-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("timm.py", "")
        archive.writestr("timm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: timm\nVersion: 1.0\n")
        archive.writestr("timm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("timm-1.0.dist-info/RECORD", "")
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="3")
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    user.env |= {"PATH": f"{venv}/bin:{user.env['PATH']}", "VIRTUAL_ENV": str(venv), **pip}
    user.python = str(venv / "bin" / "python3")
    user.write("context/step0-run.py", RUNS)
    user.write("context/startup-hook.sh", "pip install timm\n")
    try:
        yield user
    finally:
        take_down(user)


@pytest.mark.everything
def test_the_blogs_hook_installs_timm_once_for_all_trials_or_not_at_all(trains_where_det_is: User) -> None:
    user = trains_where_det_is
    made = "making the experiment's Python environment"
    without = user.create(**BLOG)
    assert f"startup-hook.sh:1: what {user.env['VIRTUAL_ENV']}, which serves det, does not have yet" in user.errors
    user.wait_state(without, "COMPLETED", "ERROR")
    logs = [user.det("trial", "logs", str(trial["id"])) for trial in user.trials(without)]
    assert len(logs) == 3 and all(f"TIMM {user.home}/experiments/{without}/venv/" in log for log in logs), logs
    assert sum(made in log for log in logs) == 1

    pip = [f"{user.env['VIRTUAL_ENV']}/bin/pip", "install", "-q", "timm"]
    subprocess.run(pip, env=user.env, check=True)
    there = user.create(**BLOG)
    user.wait_state(there, "COMPLETED", "ERROR")
    logs = [user.det("trial", "logs", str(trial["id"])) for trial in user.trials(there)]
    assert all(f"TIMM {user.env['VIRTUAL_ENV']}/" in log and made not in log for log in logs), logs
