"""Which messages tell of the same failure."""

from __future__ import annotations

import pytest

from dethpc.domain.text.messages import alike

SAME = [
    (
        "harness: there is no module 'model_def' in /local/dethpc-06a9-1.1.1-0-k3jd9_2a/work",
        "harness: there is no module 'model_def' in /local/dethpc-06a9-1.1.2-0-abcdefgh/work",
    ),
    ("there is no module 'm' in /scratch/job.4711/run-a", "there is no module 'm' in /scratch/job.4712/run-a"),
    (
        "IndexError: index 5 is out of bounds for axis 0 with size 4",
        "IndexError: index 7 is out of bounds for axis 0 with size 6",
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 39.39 GiB",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 3 has a total capacity of 79.15 GiB",
    ),
    (
        "TypeError: <Net object at 0x7f3a5c0012d0> is not callable",
        "TypeError: <Net object at 0x7fe1aa00b1c0> is not callable",
    ),
    ("OSError: lock held by n0 (pid 4711)", "OSError: lock held by n1 (pid 12)"),
    ("cannot reach n0.cluster.example:29500", "cannot reach n1.cluster.example:31999"),
    ("RuntimeError: connect to 10.0.0.1:41231 failed", "RuntimeError: connect to 10.0.0.2:9 failed"),
    ("[2026-01-02 03:04:05,678] failed", "[2026-01-02T04:05:06.7Z] failed"),
    ("run 7e57d004-2b97-0e7a-b45f-5387367791cd failed", "run 5d8c1a3f-97aa-4e11-8a80-d3f2c1ba0aa1 failed"),
    ("FileNotFoundError: '/tmp/tmpk3jd9_2a/data.csv'", "FileNotFoundError: '/tmp/tmpz0z0z0z0/data.csv'"),
    ("FileNotFoundError: '/var/tmp/tmp.aX81kdPq/data.csv'", "FileNotFoundError: '/var/tmp/tmp.bbbbbb1q/data.csv'"),
    ("FileExistsError: '/psm_1a2b3c4d'", "FileExistsError: '/psm_9f8e7d6c'"),
    (
        "No such file: '/home/a/.dethpc/runs/1.1.1/attempts/0/x'",
        "No such file: '/home/a/.dethpc/runs/1.1.2/attempts/0/x'",
    ),
    (
        "mat1 and mat2 shapes cannot be multiplied (32x128 and 64x10)",
        "mat1 and mat2 shapes cannot be multiplied (16x128 and 64x10)",
    ),
    ("took 3.5 s, the limit is 2 s", "took 400 ms, the limit is 2 s"),
    ("ValueError: loss is -1.5e-07", "ValueError: loss is 3"),
]
DIFFERENT = [
    ("KeyError: 'lr'", "KeyError: 'wd'"),
    ("ValueError: x", "TypeError: x"),
    ("exit code 1", "exit code 2"),
    ("exit code 1: KeyError: 'lr'", "exit code 2: KeyError: 'lr'"),
    ("killed by signal 9 (SIGKILL)", "killed by signal 11 (SIGSEGV)"),
    ("OSError: [Errno 2] open failed", "OSError: [Errno 13] open failed"),
    ("HTTP 404 from the hub", "HTTP 503 from the hub"),
    ("OSError: port 1024 is taken", "OSError: port 1025 is taken"),
    ("NCCL error 2", "NCCL error 5"),
    ("FileNotFoundError: '/data/train.csv'", "FileNotFoundError: '/data/val.csv'"),
    ("there is no module 'model_def' in /tmp/x1/c", "there is no module 'model' in /tmp/x1/c"),
    ("no module named 'resnet50'", "no module named 'resnet101'"),
    ("KeyError: 'layer1.weight'", "KeyError: 'layer2.weight'"),
    ("AttributeError: 'Net' object has no attribute 'fc'", "AttributeError: 'Net' object has no attribute 'fc2'"),
    ("'efficientnet_b0_1k' is unknown", "'efficientnet_b4_1k' is unknown"),
    ("the dataset is missing", "the dataset is missing: imagenet"),
    ("", "exit code 1"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_messages_of_one_failure_are_alike(first: str, second: str) -> None:
    assert alike(first, second, ["n0", "n1"])


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_messages_of_different_failures_are_not(first: str, second: str) -> None:
    assert not alike(first, second, ["n0", "n1"])
