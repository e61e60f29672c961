"""A trial over two nodes of a real Slurm, each with a disk of its own: both make the dataset once, and share its records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import User
from tests.e2e.test_data_layer import TRIAL, lines
from tests.e2e.test_slurm import jobs, on_slurm
from tests.waiting import wait_until

pytest.importorskip("lmdb")
pytest.importorskip("torch")

__all__ = ["on_slurm"]

OWN_DISK = """
import os, tempfile
folder = os.path.join(os.environ["DISKS"], os.environ["SLURMD_NODENAME"])
os.makedirs(folder, exist_ok=True)
tempfile.tempdir = os.environ["TMPDIR"] = folder
"""
"""All nodes are on this machine, and see one temporary folder."""

EPOCH = 50  # records, in 25 batches that two slots take in turns


def test_two_nodes_make_a_dataset_once_each_and_share_its_records_through_a_pause(
    on_slurm: User, tmp_path: Path
) -> None:
    user, folder = on_slurm, tmp_path / "ledgers"
    (folder / "here").mkdir(parents=True)
    script = TRIAL.replace('note("ledger", info.trial.trial_id', 'note("ledger", context.distributed.rank')
    user.write("context/train.py", OWN_DISK + script.replace("batch_size=4", "batch_size=2"))
    (folder / "here" / "another").touch()  # whoever makes it waits for nobody
    experiment = user.create(
        entrypoint="python3 -m determined.launch.torch_distributed python3 train.py",
        resources={"slots_per_trial": 2},
        slurm={"slots_per_node": 1},
        hyperparameters={"folder": str(folder), "hold": 17},
        environment={"environment_variables": ["OMP_NUM_THREADS=1", f"DISKS={tmp_path}/disks"]},
    )
    wait_until(lambda: (folder / "ledger").exists() and sum(line[1] == 16 for line in lines(folder, "ledger")) == 2)
    user.det("experiment", "pause", str(experiment))
    user.wait_state(experiment, "PAUSED")
    wait_until(lambda: not jobs(user))
    user.det("experiment", "activate", str(experiment))
    user.det("experiment", "wait", str(experiment))

    disks = sorted((tmp_path / "disks").iterdir())
    assert len(disks) == 2 and len(lines(folder, "made")) == 2, user.log(experiment)
    for disk in disks:
        assert len(list((disk / f"dethpc-datasets-{os.geteuid()}").glob("*/data/data.mdb"))) == 2
    seen = lines(folder, "ledger")
    for rank in (0, 1):
        assert [line[1] for line in seen if line[0] == rank] == list(range(26))
    taken: list[tuple[int, list[float]]] = [(2 * batch + rank, records) for rank, batch, records in seen]  # type: ignore
    in_order = [records for _, records in sorted(taken)]
    for begin in (0, EPOCH):
        epoch = [record for records in in_order[begin // 2 : (begin + EPOCH) // 2] for record in records]
        assert sorted(epoch) == list(map(float, range(EPOCH)))
