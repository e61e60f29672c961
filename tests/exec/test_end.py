"""The reason of a failure is what the program said, where it said anything."""

import sys

import pytest

from tests.exec.fixtures import Run

ARGPARSE = "import argparse\nargparse.ArgumentParser(prog='train.py').parse_args(['--lr', '1'])\n"


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("python3 fails.py", "exit code 2: train.py: error: unrecognized arguments: --lr 1"),
        ("bash job.sh", "exit code 1: job.sh: line 2: DATA: please set it"),
        ("python3 -c 'import sys; sys.exit(\"no such data set: cifar11\")'", "exit code 1: no such data set: cifar11"),
        ("echo 'out of patience' >&2; echo; exit 7", "exit code 7: out of patience"),
        ("echo only printed; exit 7", "exit code 7"),
        ("echo 'INFO:root:epoch 5' >&2; exit 7", "exit code 7"),
        ("echo ' 99%|#### | 9/10 [00:01<00:00, 9.9it/s]' >&2; exit 7", "exit code 7"),
        ("echo 'x.py:3: UserWarning: old' >&2; exit 7", "exit code 7"),
        ("echo 'long ago' >&2; sleep 0.3; seq 100; exit 7", "exit code 7"),
        (
            "echo 'asked to' >&2; kill -9 $$",
            "killed by signal 9 (SIGKILL); unless somebody killed it, the node ran out of memory",
        ),
    ],
)
def test_the_last_line_of_standard_error_is_the_reason_where_there_is_no_traceback(
    run: Run, entrypoint: str, message: str
) -> None:
    files = {"fails.py": ARGPARSE, "job.sh": "#!/bin/bash\necho ${DATA:?please set it}\n"}
    _, end = run.run(entrypoint, files)
    assert end["message"] == message


def test_of_workers_it_is_that_of_the_first_that_failed(run: Run) -> None:
    worker = "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit('rank 1 has no data')\ntime.sleep(60)\n"
    launch = [sys.executable, "-m", "dethpc.launch.torch_distributed", "--", sys.executable, "w.py"]
    code, end = run.run(launch, {"w.py": worker}, slots=2)
    assert code != 0 and "rank 1" in end["message"] and "rank 1 has no data" in end["message"], end["message"]
