"""The mpi launcher on real node processes, with real Open MPI and mpi4py."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from dethpc.rundir.logline import read_lines
from tests.launchers.conftest import module

pytestmark = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed: apt-get install openmpi-bin"),
    pytest.mark.skipif(
        importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install mpi4py"
    ),
]

LAUNCH = module("mpi")
# All nodes of the test are this one machine, and the tests may run as root.
MPI = {
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

TRAIN = """
import os, sys, time
from mpi4py import MPI
import determined as det
comm = MPI.COMM_WORLD
distributed = det.core.DistributedContext.from_mpi(comm)
info = det.get_cluster_info()
print("sum", comm.allreduce(comm.Get_rank()), sys.argv[1:], distributed.allgather(distributed.local_rank), distributed.cross_rank,
      info.agent_id, os.environ["DET_AGENT_ID"], os.getcwd() == os.environ["DET_WORKDIR"], os.path.exists("train.py"), flush=True)
if comm.Get_rank() == comm.Get_size() - 1:
    if "exit" in sys.argv: os._exit(3)
    if "die" in sys.argv: os.kill(os.getpid(), 9)
if {"exit", "die"} & set(sys.argv): time.sleep(100_000)
distributed.close()
"""


def said(run) -> list:
    lines = [line for node in run.attempt().nodes_with_logs() for line in read_lines(run.attempt().log(node))[0]]
    return sorted((line.rank, line.text) for line in lines if line.text.startswith("sum"))


def test_two_nodes_of_two_processes_are_one_world(run) -> None:
    run.make([*LAUNCH, "train.py", "--lr", "1"], {"train.py": TRAIN}, slots=4, slots_per_node=2, num_nodes=2)
    nodes = [run.start(rank, 2, **MPI) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    assert said(run) == [
        (2 * node + i, f"sum 6 ['--lr', '1'] [0, 1, 0, 1] {node} n{node} n{node} True True")
        for node in range(2)
        for i in range(2)
    ]


def test_nodes_with_one_tmp_keep_their_sessions_apart_and_leave_nothing(run, tmp_path) -> None:
    script = "import os; print('session', os.environ['OMPI_MCA_orte_tmpdir_base'], flush=True)"
    run.make([*LAUNCH, "session.py"], {"session.py": script}, slots=2, slots_per_node=1, num_nodes=2)
    (tmp_path / "short").mkdir()
    nodes = [run.start(rank, 2, TMPDIR=str(tmp_path / "short"), **MPI) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    lines = [line for node in run.attempt().nodes_with_logs() for line in read_lines(run.attempt().log(node))[0]]
    sessions = [Path(line.text.split()[1]) for line in lines if line.text.startswith("session")]
    assert len(set(sessions)) == 2
    assert {path.parent for path in sessions} == {tmp_path / "short"}
    assert not any(path.exists() for path in sessions)


def test_one_node(run) -> None:
    run.make([*LAUNCH, "--report-bindings", "--", "train.py"], {"train.py": TRAIN}, slots=2, slots_per_node=2)
    assert run.finish(run.start(**MPI))[0] == 0, run.text()
    assert len(said(run)) == 2
    assert "not bound" in run.text()


@pytest.mark.parametrize(("how", "message"), [("exit", "exit code 3"), ("die", "killed by signal 9 (SIGKILL)")])
def test_the_first_failure_ends_all_nodes_and_is_the_reason(run, how, message) -> None:
    run.make([*LAUNCH, "train.py", how], {"train.py": TRAIN}, slots=2, slots_per_node=1, num_nodes=2)
    nodes = [run.start(rank, 2, **MPI) for rank in range(2)]
    ended = [run.finish(node) for node in nodes]
    assert all(code for code, _ in ended)
    assert run.end() is not None, ended
    assert run.end()["message"].startswith(f"rank 1 on n1: {message}")


def test_an_option_that_mpirun_does_not_know(run) -> None:
    run.make(
        [*LAUNCH, "--no-such-option", "--", "train.py"], {"train.py": TRAIN}, slots=2, slots_per_node=1, num_nodes=2
    )
    nodes = [run.start(rank, 2, **MPI) for rank in range(2)]
    assert all(run.finish(node)[0] for node in nodes)
    assert run.end()["phase"] == "launch", (run.end(), run.text(0), run.text(1))
    assert 'unknown option "--no-such-option"' in run.end()["message"]


def test_without_mpirun_it_says_how_to_get_it(run) -> None:
    run.make([*LAUNCH, "train.py"], {"train.py": TRAIN}, environment={"PATH": "/nowhere"})
    assert run.finish(run.start())[0] == 2
    assert "module load openmpi" in run.end()["message"]
