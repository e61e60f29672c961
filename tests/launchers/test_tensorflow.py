"""The tensorflow launcher: TF_CONFIG, and real TensorFlow where it is installed."""

import importlib.util
import json

import pytest

from dethpc.rundir.logline import read_lines
from tests.launchers.conftest import module

LAUNCH = module("tensorflow")
SHOW = "import os, sys; print('config', os.environ.get('TF_CONFIG'), sys.argv[1:])"

TRAIN = """
import determined as det
distributed, strategy = det.core.DistributedContext.from_tf_config()
import tensorflow as tf
with strategy.scope():
    weight = tf.Variable(1.0)
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", weight))
print("config", type(strategy).__name__, strategy.num_replicas_in_sync, float(total), distributed.allgather(distributed.rank))
distributed.close()
"""


def said(run, node: int) -> list:
    lines, _ = read_lines(run.attempt().log(node))
    return [(line.rank, line.text.removeprefix("config ")) for line in lines if line.text.startswith("config ")]


@pytest.mark.parametrize("options", [[], ["--port", "2500"], ["--port", "2500", "--"]])
def test_every_node_gets_its_part_of_one_configuration(run, options) -> None:
    run.make([*LAUNCH, *options, "show.py", "-x"], {"show.py": SHOW}, slots=4, slots_per_node=2, num_nodes=2)
    nodes = [run.start(rank, 2) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    configs = []
    for node in range(2):
        ((rank, text),) = said(run, node)
        assert rank == node
        assert text.endswith(" ['-x']")
        configs.append(json.loads(text.removesuffix(" ['-x']")))
    assert [config.pop("task") for config in configs] == [{"type": "worker", "index": index} for index in (0, 1)]
    assert configs[0] == configs[1]
    first, second = configs[0]["cluster"]["worker"]
    assert first != second
    if options:
        assert first == "127.0.0.1:2500"


def test_a_single_node_has_no_configuration(run) -> None:
    run.make([*LAUNCH, "show.py"], {"show.py": SHOW}, slots=2, slots_per_node=2)
    assert run.finish(run.start())[0] == 0, run.text()
    assert said(run, 0) == [(None, "None []")]


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_two_nodes_of_real_tensorflow(run) -> None:
    run.make([*LAUNCH, "train.py"], {"train.py": TRAIN}, slots=2, slots_per_node=1, num_nodes=2)
    nodes = [run.start(rank, 2) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    assert said(run, 1) == [(1, "CollectiveAllReduceStrategy 2 2.0 [0, 1]")] or said(run, 1) == [
        (1, "MultiWorkerMirroredStrategy 2 2.0 [0, 1]")
    ]
