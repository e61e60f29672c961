"""The horovod launchers on real node processes; real Horovod where it is installed."""

import importlib.util
import os
import sys

import pytest

from dethpc.rundir.logline import read_lines
from tests.launchers.conftest import ROOT, module

HOROVOD = importlib.util.find_spec("horovod") is not None
needs_horovod = pytest.mark.skipif(not HOROVOD, reason="Horovod is not installed: scripts/build-horovod builds it")

TRAIN = """
import os, sys, time, torch
import horovod.torch as hvd
import determined as det
hvd.init()
distributed = det.core.DistributedContext.from_horovod(hvd)
total = hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum)
names = ["HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "USE_HOROVOD", "DET_CHIEF_IP"]
print("sum", total.item(), sys.argv[1:], distributed.allgather(hvd.local_rank()), hvd.cross_rank(),
      *[os.environ.get(name) for name in names], flush=True)
if hvd.rank() == hvd.size() - 1:
    if "exit" in sys.argv: sys.exit(3)
    if "die" in sys.argv: os.kill(os.getpid(), 9)
if {"exit", "die"} & set(sys.argv):
    hvd.allreduce(torch.zeros(1), name="never")  # fails soon for want of the other
    time.sleep(100_000)
distributed.close()
"""


def said(run, rank: int) -> list:
    lines, _ = read_lines(run.attempt().log(rank))
    return sorted((line.rank, line.text) for line in lines if line.text.startswith("sum"))


@needs_horovod
def test_two_nodes_of_two_workers_train_together(run) -> None:
    optimizations = {"tensor_fusion_threshold": 32, "tensor_fusion_cycle_time": 4}
    run.make(
        [*module("horovod"), "--cycle-time-ms", "2", "--", "train.py", "--lr", "1"],
        {"train.py": TRAIN}, slots=4, slots_per_node=2, num_nodes=2, config={"optimizations": optimizations},
    )  # fmt: skip
    nodes = [run.start(rank, 2, OMP_NUM_THREADS="1") for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    tuned = f"{32 << 20} 2.0 1 127.0.0.1"
    for node in range(2):
        assert said(run, node) == [
            (2 * node + i, f"sum 6.0 ['--lr', '1'] [0, 1, 0, 1] {node} {tuned}") for i in range(2)
        ]


@needs_horovod
@pytest.mark.parametrize(("how", "message"), [("exit", "exit code 3"), ("die", "killed by signal 9 (SIGKILL)")])
def test_the_first_failure_is_the_reason_and_not_what_it_does_to_others(run, how, message) -> None:
    run.make([*module("horovod"), "train.py", how], {"train.py": TRAIN}, slots=2, slots_per_node=1, num_nodes=2)
    nodes = [run.start(rank, 2, OMP_NUM_THREADS="1") for rank in range(2)]
    assert all(run.finish(node)[0] for node in nodes)
    assert run.end()["message"].startswith(f"rank 1 on n1: {message}")


@needs_horovod
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["--no-such-option"], "--no-such-option"),
        (["-np", "7"], "-np 7: the trial has 2 slots"),
        (["--min-np", "1"], "elastic"),
        (["--fusion-threshold-mb", "-3"], "fusion_threshold_mb"),
    ],
)
def test_what_cannot_be_is_refused(run, overrides, words) -> None:
    run.make([*module("horovod"), *overrides, "--", "train.py"], {"train.py": TRAIN}, slots=2, slots_per_node=2)
    assert run.finish(run.start())[0] == 2
    assert (run.end()["phase"], words in run.end()["message"]) == ("launch", True)


@pytest.mark.parametrize("slots", [0, 1])
def test_autohorovod_runs_a_single_slot_plainly(run, slots) -> None:
    entrypoint = [*module("autohorovod"), "--cycle-time-ms", "2", "--", "sh", "-c", "echo $USE_HOROVOD plain"]
    code, _ = run.run(entrypoint, slots=slots, slots_per_node=slots)
    assert (code, run.text().strip()) == (0, "plain")


def test_torchrun_starts_a_trial_class_without_horovod(run, tmp_path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['horovod'] = None\n")
    run.make("no_such:Trial", slots=2, slots_per_node=2)  # the entrypoint of older configurations
    code, _ = run.finish(run.start(PYTHONPATH=f"{tmp_path}:{ROOT}"))
    assert code == 1
    assert run.end()["message"].startswith("rank ")
    assert "there is no module 'no_such'" in "\n".join(run.end()["tail"])
    assert run.text().count("autohorovod: Horovod is not installed for PyTorch, so torchrun starts the workers") == 1


def test_without_horovod_it_says_how_to_get_it(run, tmp_path) -> None:
    # An interpreter that sees the standard library alone.
    bare = [os.path.realpath(sys.executable), "-S", "-s", "-m", "determined.launch.horovod", "train.py"]
    code, report = run.run(bare, slots=2, slots_per_node=2)
    assert (code, report["phase"]) == (2, "launch")
    assert "horovod is not installed" in report["message"]
    assert "pip install" in report["message"]
