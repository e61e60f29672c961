"""The trial side from the harness bundle, on the oldest and the newest Python of compute nodes, with the standard library alone."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from dethpc.domain.reports import Report
from dethpc.rundir.files import create_once
from dethpc.rundir.journal import read
from tests.exec.fixtures import Run, run
from tests.packaging.conftest import interpreter
from tests.waiting import wait_until

__all__ = ["run"]

TRAIN = """\
import json, os, sys, time
import determined as det
site = [path for path in sys.path if path.endswith("site-packages")]
assert not any(os.listdir(path) for path in site), site
info = det.get_cluster_info()
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
distributed = det.core.DistributedContext(
    rank=rank, size=2, local_rank=0, local_size=1, cross_rank=rank, cross_size=2, chief_ip=info.container_addrs[0]
)
with det.core.init(distributed=distributed) as core:
    begin = 0
    if info.latest_checkpoint:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            begin = json.loads((path / "rank0").read_text())
    for step in range(begin + 1, 10**6):
        assert core.distributed.allgather(rank) == [0, 1]
        if info.trial.hparams.get("fail") and rank == 1:
            sys.exit(3)
        if rank == 0:
            core.train.report_training_metrics(step, {"step": step})
        stop = core.preempt.should_preempt() or (begin and step == begin + 3)
        if stop:
            with core.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, uuid):
                (path / f"rank{rank}").write_text(str(step))
            if rank == 0:
                core.train.report_validation_metrics(step, {"loss": 1 / step})
            break
        time.sleep(0.02)
print("python", sys.version_info[:2], flush=True)
"""
LAUNCH = "python3 -m determined.launch.tensorflow -- python3 train.py"


def events(run: Run, kind: str, k: int) -> list[Report]:
    return [event for event in read(run.attempt(k).journal)[0] if event.kind == kind]


@pytest.mark.parametrize("version", ["3.9", pytest.param("3.13", marks=pytest.mark.everything)])
def test_two_nodes_train_stop_resume_and_fail(run: Run, bundle: Path, tmp_path: Path, version: str) -> None:
    venv = tmp_path / "bare"
    subprocess.run([interpreter(version), "-m", "venv", "--without-pip", str(venv)], check=True)
    run.python = str(venv / "bin" / "python3")
    environ = {"PYTHONPATH": str(bundle), "PATH": f"{venv}/bin:/usr/bin:/bin"}
    shape = {"slots": 2, "slots_per_node": 1, "num_nodes": 2}
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "checkpoints")}

    run.make(LAUNCH, {"train.py": TRAIN}, checkpoint_storage=storage, **shape)
    nodes = [run.start(rank, 2, **environ) for rank in (0, 1)]
    wait_until(lambda: run.attempt(0).journal.exists() and events(run, "metrics", 0))
    create_once(run.attempt(0).stop, {"reason": "pause", "at": time.time(), "deadline": None})
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    end = run.end()
    assert end is not None and end["acked"] and not end["finished"]
    (stored,) = events(run, "checkpoint", 0)

    nodes = [run.start(rank, 2, k=1, **environ) for rank in (0, 1)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0, 1) + run.text(1, 1)
    end = run.end(1)
    assert end is not None and end["finished"]
    (again,) = events(run, "checkpoint", 1)
    assert again.data["steps_completed"] == stored.data["steps_completed"] + 3
    assert sorted(again.data["resources"])[-2:] == ["rank0", "rank1"]
    assert f"python ({', '.join(version.split('.'))})" in run.text(1, 1)

    run.make(LAUNCH, {"train.py": TRAIN}, hparams={"fail": True}, checkpoint_storage=storage, **shape)
    nodes = [run.start(rank, 2, k=2, **environ) for rank in (0, 1)]
    assert all(run.finish(node)[0] for node in nodes)
    assert "rank 1 on n1: exit code 3" in (run.end(2) or {})["message"]
