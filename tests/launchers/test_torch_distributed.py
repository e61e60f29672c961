"""torchrun as the entrypoint of real node processes."""

import sys

import pytest

from dethpc.rundir.logline import read_lines
from tests.launchers.conftest import module

pytest.importorskip("torch")

LAUNCH = module("torch_distributed")

ALL_REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "DET_CHIEF_IP", "USE_TORCH_DISTRIBUTED"]
print("sum", total.item(), sys.argv[1:], *[os.environ.get(name) for name in names], flush=True)
if "fail" in sys.argv and dist.get_rank() == 1:
    dist.destroy_process_group()  # its threads can end an interpreter that is going down by SIGABRT, whatever the error was
    raise ValueError("bad lr")
if "die" in sys.argv and dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
if "hang" in sys.argv:
    import time; time.sleep(100_000)
dist.destroy_process_group()
"""


def said(run, rank: int) -> list:
    lines, _ = read_lines(run.attempt().log(rank))
    return sorted((line.rank, line.text) for line in lines if line.text.startswith("sum"))


def test_two_nodes_of_two_workers_train_together(run) -> None:
    run.make([*LAUNCH, "train.py", "--lr", "1"], {"train.py": ALL_REDUCE}, slots=4, slots_per_node=2, num_nodes=2)
    nodes = [run.start(rank, 2) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    for node in range(2):
        expected = [
            (2 * node + i, f"sum 6.0 ['--lr', '1'] {2 * node + i} {i} 4 2 {node} 127.0.0.1 True") for i in range(2)
        ]
        assert said(run, node) == expected
    assert run.end()["finished"]


@pytest.mark.parametrize("slots", [0, pytest.param(1, marks=pytest.mark.everything)])
def test_one_worker_goes_through_torchrun_too(run, slots) -> None:
    run.make([*LAUNCH, sys.executable, "train.py"], {"train.py": ALL_REDUCE}, slots=slots, slots_per_node=slots)
    assert run.finish(run.start())[0] == 0, run.text()
    assert said(run, 0) == [(0, "sum 0.0 [] 0 0 1 1 0 127.0.0.1 True")]


@pytest.mark.parametrize(
    "script, code, words",
    [
        pytest.param(["train.py"], 2, "can't open file", marks=pytest.mark.everything),
        (["nothing:Here"], 1, "harness: there is no module 'nothing' in "),
        pytest.param(["no-such-program", "x"], 127, "no-such-program: not found", marks=pytest.mark.everything),
    ],
)
def test_what_a_worker_could_not_start_is_the_message(run, script, code, words) -> None:
    run.make([*LAUNCH, *script], slots=1, slots_per_node=1)
    assert run.finish(run.start())[0] != 0
    assert run.end()["message"].startswith(f"rank 0: exit code {code}: ") and words in run.end()["message"]


def test_a_failing_worker_gives_the_message_and_ends_the_others(run) -> None:
    run.make([*LAUNCH, "train.py", "fail", "hang"], {"train.py": ALL_REDUCE}, slots=2, slots_per_node=2)
    code, _ = run.finish(run.start())
    assert (code, run.end()["message"]) == (1, "rank 1: exit code 1: ValueError: bad lr")


@pytest.mark.everything
def test_a_killed_workers_signal_is_the_exit_code(run) -> None:
    run.make([*LAUNCH, "train.py", "die", "hang"], {"train.py": ALL_REDUCE}, slots=2, slots_per_node=2)
    code, _ = run.finish(run.start())
    assert (code, run.end()["signal"]) == (137, 9)


def test_overrides_reach_torchrun(run) -> None:
    run.make([*LAUNCH, "--nproc_per_node", "1", "--", "train.py"], {"train.py": ALL_REDUCE}, slots=2, slots_per_node=2)
    assert run.finish(run.start())[0] == 0, run.text()
    assert len(said(run, 0)) == 1


def test_an_option_that_torchrun_does_not_know_is_said_and_not_tried_again(run) -> None:
    run.make([*LAUNCH, "--no-such-option", "1", "--", "train.py"], {"train.py": ALL_REDUCE}, slots=2, slots_per_node=2)
    assert run.finish(run.start())[0] == 2
    assert run.end()["phase"] == "launch"
    assert "--no-such-option" in run.end()["message"]
