"""The deepspeed launcher on real node processes; real DeepSpeed where it is installed."""

import importlib.util

import pytest

from dethpc.rundir.logline import read_lines
from tests.launchers.conftest import module

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed: pip install deepspeed"
)

LAUNCH = module("deepspeed")

CPU = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}

PLACE = """
import os, sys, time
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE MASTER_ADDR USE_DEEPSPEED DET_CHIEF_IP OMP_NUM_THREADS"
print("place", sys.argv[1:], *[os.environ.get(name) for name in names.split()], flush=True)
if os.environ["RANK"] == "3":
    if "exit" in sys.argv: sys.exit(3)
    if "die" in sys.argv: os.kill(os.getpid(), 9)
if {"exit", "die"} & set(sys.argv): time.sleep(100_000)
"""

TRAIN = """
import torch, deepspeed
import determined as det
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # which would be compiled for the first use
deepspeed.init_distributed(dist_backend="gloo")
distributed = det.core.DistributedContext.from_deepspeed()
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
          "zero_optimization": {"stage": 1}}
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
for _ in range(2):
    loss = engine(torch.ones(2, 4) * (1 + distributed.rank)).square().mean()
    engine.backward(loss); engine.step()
weights = distributed.allgather([p.tolist() for p in net.parameters()])
print("same", all(w == weights[0] for w in weights), distributed.size, distributed.cross_rank, flush=True)
distributed.close()
torch.distributed.destroy_process_group()  # its threads can end an interpreter that is going down by SIGABRT
"""


def lines(run, node: int, word: str) -> list:
    found, _ = read_lines(run.attempt().log(node))
    return sorted((line.rank, line.text) for line in found if line.text.startswith(word))


def test_each_node_starts_its_own_workers(run) -> None:
    run.make([*LAUNCH, "train.py", "--lr", "1"], {"train.py": PLACE}, slots=4, slots_per_node=2, num_nodes=2)
    nodes = [run.start(rank, 2) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    for node in range(2):
        assert lines(run, node, "place") == [
            (2 * node + i, f"place ['--lr', '1'] {2 * node + i} 4 {i} 2 {node} 2 127.0.0.1 1 127.0.0.1 None")
            for i in range(2)
        ]


@pytest.mark.parametrize(("how", "message"), [("exit", "exit code 3"), ("die", "killed by signal 9 (SIGKILL)")])
def test_the_first_failure_ends_all_nodes_and_is_the_reason(run, how, message) -> None:
    run.make([*LAUNCH, "train.py", how], {"train.py": PLACE}, slots=4, slots_per_node=2, num_nodes=2)
    nodes = [run.start(rank, 2) for rank in range(2)]
    assert all(run.finish(node)[0] for node in nodes)
    assert run.end()["message"].startswith(f"rank 3 on n1: {message}")
    assert run.end()["tail"][0].startswith("place ")


def test_real_deepspeed_trains_on_two_nodes(run) -> None:
    run.make([*LAUNCH, "train.py"], {"train.py": TRAIN}, slots=2, slots_per_node=1, num_nodes=2)
    nodes = [run.start(rank, 2, **CPU) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    assert lines(run, 1, "same") == [(1, "same True 2 1")]


def test_overrides_of_the_deepspeed_command(run) -> None:
    run.make(
        [*LAUNCH, "--num_gpus=2", "--master_addr", "localhost", "--bind_cores_to_rank", "--hostfile", "x", "--", "train.py"],
        {"train.py": PLACE}, slots=2, slots_per_node=2,
    )  # fmt: skip
    assert run.finish(run.start())[0] == 0, run.text()
    assert lines(run, 0, "place")[0][1].startswith("place [] 0 2 0 2 0 1 localhost 1 127.0.0.1 ")
    assert not lines(run, 0, "place")[0][1].endswith("None")
    assert "--hostfile has no effect" in run.text()


def test_more_workers_than_slots_are_refused(run) -> None:
    run.make([*LAUNCH, "--num_gpus", "3", "--", "train.py"], {"train.py": PLACE}, slots=2, slots_per_node=2)
    assert run.finish(run.start())[0] == 2
    assert "there are 2 slots" in run.end()["message"]
