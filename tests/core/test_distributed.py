"""Workers as real processes on loopback: the collective calls, authentication, and what happens when one dies."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Dict

import pytest

from dethpc.core import _channel
from dethpc.core._distributed import DistributedContext, DummyDistributedContext
from dethpc.errors import RendezvousError
from tests.core.conftest import PREAMBLE, ROOT, Workers, results
from tests.waiting import LONG_ENOUGH

ALL_CALLS = """
d = DistributedContext.from_torch_distributed()
say(d.gather(rank)); say(d.allgather({"r": rank})); say(d.broadcast(f"from {rank}"))
say(d.gather_local(rank)); say(d.allgather_local(rank)); say(d.broadcast_local(f"from {rank}"))
say(len(d.allgather(b"x" * 3_000_000)))
d.close(); d.close()
"""


@pytest.mark.parametrize(("nodes", "extra"), [(1, {}), (2, {})])
def test_every_call_reaches_everybody(workers: Workers, nodes: int, extra: Dict[str, str]) -> None:
    found = results(workers.start(ALL_CALLS, 4, nodes=nodes, **extra))
    per_node = 4 // nodes
    for rank, said in enumerate(found):
        chief = rank - rank % per_node
        node = list(range(chief, chief + per_node))
        assert said == [
            [0, 1, 2, 3] if rank == 0 else None,
            [{"r": 0}, {"r": 1}, {"r": 2}, {"r": 3}],
            "from 0",
            node if rank == chief else None,
            node,
            f"from {chief}",
            4,
        ]
    secret = json.loads((workers.home / "distributed.json").read_text())
    assert len(secret["secret"]) == 64
    assert (workers.home / "distributed.json").stat().st_mode & 0o077 == 0


def test_force_tcp_uses_the_port(workers: Workers) -> None:
    body = """
    d = DistributedContext(rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1,
                           pub_port=int(os.environ["MASTER_PORT"]), force_tcp=True)
    say(d.allgather(rank)); say(d.allgather_local(rank)); say(d._all._channel.sock.family.name if rank else "")
    """
    assert results(workers.start(body, 2)) == [[[0, 1], [0, 1], ""], [[0, 1], [0, 1], "AF_INET"]]


def test_the_calls_stay_in_step_over_many_rounds(workers: Workers) -> None:
    body = """
    d = DistributedContext.from_torch_distributed()
    for n in range(300):
        assert d.broadcast(n) == n and d.allgather(n + rank) == [n + r for r in range(size)]
        d.gather(n)
    say(n)
    """
    assert results(workers.start(body, 3)) == [[299]] * 3


def test_a_second_context_after_the_first(workers: Workers) -> None:
    body = """
    for n in range(3):
        d = DistributedContext.from_torch_distributed()
        say(d.allgather(rank)); d.close()
    """
    assert results(workers.start(body, 3)) == [[[0, 1, 2]] * 3] * 3


DIES = """
d = DistributedContext.from_torch_distributed()
d.allgather(None); say("in")
if rank == int(os.environ["VICTIM"]):
    time.sleep(100_000)
try:
    d.allgather(rank)
except ConnectionError as error:
    say(str(error))
"""


@pytest.mark.parametrize("victim", [0, 2])
def test_a_worker_that_dies_makes_the_others_fail_with_its_name(workers: Workers, victim: int) -> None:
    processes = workers.start(DIES, 4, nodes=2, VICTIM=str(victim))
    for process in processes:
        assert process.stdout and process.stdout.readline() == '"in"\n'
    os.kill(processes[victim].pid, signal.SIGKILL)
    for rank, process in enumerate(processes):
        out, err = process.communicate(timeout=LONG_ENOUGH)
        if rank != victim:
            assert re.search(f"rank {victim} has left", out), (rank, out, err)


def test_a_child_process_of_a_dead_worker_does_not_hide_its_death(workers: Workers) -> None:
    body = """
    d = DistributedContext.from_torch_distributed()
    if rank == 1:
        child = os.fork()
        if child == 0:
            time.sleep(100_000); os._exit(0)
        say(child)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        d.allgather(rank)
    except ConnectionError as error:
        say(str(error))
    """
    chief, victim = workers.start(body, 2)
    line = chief.stdout.readline() if chief.stdout else ""
    child = int(victim.stdout.readline()) if victim.stdout else 0
    os.kill(child, signal.SIGKILL)
    assert "rank 1 has left" in line


def test_workers_out_of_step_are_told_so(workers: Workers) -> None:
    body = """
    d = DistributedContext.from_torch_distributed()
    try:
        d.gather(1) if rank == 1 else d.allgather(1)
    except (RuntimeError, ConnectionError) as error:
        say(str(error))
    """
    for said in results(workers.start(body, 3)):
        assert "out of step" in said[0] and "rank 1 calls gather()" in said[0]


def test_missing_workers_are_named(workers: Workers) -> None:
    body = """
    if rank == 2: sys.exit()
    ready_together(0, 1)
    try:
        DistributedContext.from_torch_distributed()
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
    """
    said = results(workers.start(body, 3, DETHPC_RENDEZVOUS_TIMEOUT="3"))
    assert "rank 2" in said[0][0] and "RendezvousError" in said[0][0]
    assert "has left" in said[1][0]


def test_a_worker_with_another_key_is_kept_out_and_nothing_of_it_unpickled(workers: Workers) -> None:
    body = """
    if rank == 1: os.environ["DETHPC_DISTRIBUTED_TOKEN"] = "wrong"
    ready_together(0, 1)
    try:
        DistributedContext.from_torch_distributed()
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
    """
    said = results(workers.start(body, 2, DETHPC_RENDEZVOUS_TIMEOUT="5", DETHPC_DISTRIBUTED_TOKEN="right"))
    assert "rank 1" in said[0][0]
    assert "has another key" in said[1][0]


def test_one_worker_alone_needs_no_sockets() -> None:
    context = DummyDistributedContext()
    assert context.gather(1) == context.allgather(1) == context.allgather_local(1) == [1]
    assert context.broadcast(2) == context.broadcast_local(2) == 2
    assert (context.get_rank(), context.get_size(), context.get_local_rank(), context.get_num_agents()) == (0, 1, 0, 1)
    context.close()


def test_impossible_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="give all"):
        DistributedContext(rank=0, size=None, local_rank=0, local_size=1, cross_rank=0, cross_size=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not possible"):
        DistributedContext(rank=2, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=2, chief_ip="x")
    with pytest.raises(AssertionError, match="chief_ip"):
        DistributedContext(rank=0, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=2)


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RendezvousError, match="another task"):
            _channel.listen(("127.0.0.1", taken.getsockname()[1]))


def test_deepspeeds_environment_says_who_is_who(workers: Workers) -> None:
    body = """
    for theirs, ours in (("LOCAL_SIZE", "LOCAL_WORLD_SIZE"), ("CROSS_RANK", "GROUP_RANK"), ("CROSS_SIZE", "GROUP_WORLD_SIZE")):
        os.environ[theirs] = os.environ.pop(ours)
    d = DistributedContext.from_deepspeed()
    say(d.allgather((d.rank, d.local_rank, d.cross_rank)))
    say(d.allgather_local(d.rank))
    d.close()
    """
    everybody = [[0, 0, 0], [1, 1, 0], [2, 0, 1], [3, 1, 1]]
    assert results(workers.start(body, 4, nodes=2)) == [[everybody, [0, 1]]] * 2 + [[everybody, [2, 3]]] * 2


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed: apt-get install openmpi-bin")
def test_the_world_of_mpi_is_taken_over(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpi4py")
    body = """
    d = DistributedContext.from_mpi()
    found = [d.rank, d.size, d.local_rank, d.cross_size, d.allgather(rank), d.broadcast_local(f"from {rank}")]
    with open(os.path.join(os.environ["DETHPC_HOME"], f"said-{rank}"), "w") as file:  # mpirun mixes what ranks print
        json.dump(found, file)
    d.close()
    """
    code = PREAMBLE.replace('os.environ["RANK"]', 'os.environ["OMPI_COMM_WORLD_RANK"]').replace(
        "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"
    )
    monkeypatch.setenv("DETHPC_HOME", str(workers.home))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # A port is also the name of the socket where they meet: without one it is that of everybody else's MPI programs.
    monkeypatch.setenv("INTER_TRAIN_PROCESS_COMM_PORT_1", str(workers.free_port()))
    monkeypatch.setenv("OMPI_MCA_btl", "self,tcp")
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_include", "lo")
    monkeypatch.delenv("DETHPC_INFO", raising=False)
    command = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        sys.executable,
        "-c",
        code + textwrap.dedent(body),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_ENOUGH)
    assert done.returncode == 0, done.stderr
    assert [json.loads((workers.home / f"said-{rank}").read_text()) for rank in range(2)] == [
        [rank, 2, rank, 1, [0, 1], "from 0"] for rank in range(2)
    ]
