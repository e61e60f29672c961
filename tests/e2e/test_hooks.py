"""Start-up hooks of a context, as a user on a login node brings them."""

from __future__ import annotations

import subprocess
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
    script = user.create(entrypoint="job.sbatch", resources={"slots_per_trial": 2})
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
