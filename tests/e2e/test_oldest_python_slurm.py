"""Compute nodes with Python 3.9, the oldest that is allowed there, on a real Slurm; the login node keeps its own."""

from __future__ import annotations

import re
from pathlib import Path

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.test_slurm import final_state, user_of


def test_a_trial_on_a_node_with_python_3_9_is_paused_and_goes_on(slurm: Cluster, python39: str, tmp_path: Path) -> None:
    pools = {"old": {"partition": "main", "slots_per_node": 4, "python": python39}}
    with user_of(slurm, tmp_path, pools=pools) as user:
        train = user.folder / "context" / "train.py"
        train.write_text(
            f"import sys; print('trained by Python %d.%d' % sys.version_info[:2], flush=True)\n{train.read_text()}"
        )
        whole = user.create(entrypoint=f"{python39} train.py", hyperparameters={"lr": 0.1, "steps": 40, "pause": 0.0})
        paused = user.create(entrypoint=f"{python39} train.py", hyperparameters={"lr": 0.1, "steps": 40, "pause": 0.15})
        user.wait_steps(paused, 3)
        user.det("experiment", "pause", str(paused))
        user.wait_state(paused, "PAUSED")
        user.det("experiment", "activate", str(paused))
        for experiment in (whole, paused):
            user.det("experiment", "wait", str(experiment))
        log = user.log(paused)
        assert set(re.findall(r"trained by Python (\S+)", log)) == {"3.9"}
        assert log.count("starting at step") == 2
        assert final_state(log) == final_state(user.log(whole))
