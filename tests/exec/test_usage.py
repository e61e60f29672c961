"""What a node's part of an attempt uses is measured on the node, and stands in the run directory."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import pytest

from dethpc.domain.attempts.usage import GpuUse, NodeUse
from dethpc.exec import usage
from dethpc.exec.usage import Gpus, Meter
from dethpc.rundir.files import read_json
from tests.waiting import LONG_ENOUGH

MIB = 1 << 20
BURN = "import time\nheld = b'x' * (%d << 20)\nwhile time.process_time() < 0.3: pass\n"


def test_an_attempt_tells_the_cpu_time_and_memory_of_all_its_processes(run) -> None:
    nested = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN % 96!r}])"]
    run.make(nested)
    run.finish(run.start(SLURM_CPUS_ON_NODE="4", SLURM_MEM_PER_NODE="1024"))
    (use,) = run.attempt().node_uses(1)
    assert (use.cpus, use.memory_given) == (4, 1024 * MIB)
    assert use.cpu_seconds > 0.3 and use.seconds > 0.3 and use.memory > 96 * MIB
    assert use.gpus == [] and use.at is not None and use.at <= run.end()["at"], "the end report comes after it"


def test_a_damaged_or_missing_file_of_one_node_does_not_hide_the_others(run) -> None:
    attempt = run.attempt()
    attempt.make()
    attempt.usage(1).write_text("{")
    attempt.usage(2).write_text('{"seconds": "x", "cpu_seconds": -1, "memory": 5, "gpus": [{}, 3], "cpus": 0}')
    assert attempt.node_uses(3) == [NodeUse(0.0, 0.0, 5, gpus=[GpuUse("", 0.0, 0, 0)])]


@pytest.fixture
def start() -> Iterator[Callable[..., None]]:
    """Starts a process that holds some MiB and has used 0.3 s of CPU time; returns once it has."""
    started = []

    def one(mebibytes: int, **environ: str) -> None:
        code = BURN % mebibytes + "print('ready', flush=True)\ntime.sleep(600)"
        env = {name: text for name, text in os.environ.items() if not name.startswith("SLURM")}
        child = subprocess.Popen([sys.executable, "-c", code], env={**env, **environ}, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"

    yield one
    for child in started:
        child.kill()
        child.communicate()


def test_tasks_that_slurm_started_for_the_job_count_and_those_of_other_nodes_and_clusters_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[..., None]
) -> None:
    job = {"SLURM_JOB_ID": f"{os.getpid()}0001"}  # another id of ours: the local scheduler runs inside of that job
    here = {"SLURMD_NODENAME": "n0", "SLURM_CONF": "/etc/slurm/slurm.conf"}
    start(64, **job, **here)
    start(256, **job, **{**here, "SLURMD_NODENAME": "n1"})
    start(256, **job, **{**here, "SLURM_CONF": "/another/slurm.conf"})  # of another cluster on this machine
    monkeypatch.setattr(usage.processes, "descendants", lambda sessions: [])
    alone, mine = (
        Meter(tmp_path / "a", {**job, "DETHPC_JOB_ID": "3"}),
        Meter(tmp_path / "b", {**job, "DETHPC_JOB_ID": job["SLURM_JOB_ID"], **here}),
    )
    for meter in (alone, mine, mine):  # looking twice counts nothing twice
        meter.write()
    one, both = alone.use(), mine.use()
    assert 0.25 < both.cpu_seconds - one.cpu_seconds < 10
    # Peaks of processes that ended earlier may hide what is held now.
    assert 64 * MIB < mine._memory - alone._memory < 256 * MIB


def test_a_node_that_dies_leaves_what_it_had_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1.0, now=100.0)
    monkeypatch.setattr(usage, "time", clock)
    meter, path, written = Meter(tmp_path / "usage-0.json", {}), tmp_path / "usage-0.json", []
    monkeypatch.setattr(usage.processes, "descendants", lambda sessions: [])
    for second in range(100, 3000, 10):
        clock.now = float(second)
        meter.look()
        seconds = (read_json(path) or {}).get("seconds")
        if seconds is not None and seconds not in written:
            written.append(seconds)
    assert written[0] <= 60 and all(b - a <= 610 for a, b in zip(written, written[1:])) and len(written) < 12


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({}, None),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_NODE": "2048"}, 2048 * MIB),
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "8"}, 4096 * MIB),
        ({"SLURM_MEM_PER_GPU": "512", "SLURM_GPUS_ON_NODE": "2"}, 1024 * MIB),
        ({"SLURM_MEM_PER_CPU": "512"}, None),
    ],
)
def test_the_memory_that_slurm_gave(environ: dict[str, str], given: Any) -> None:
    assert usage.memory_given(environ) == given


class Loop:
    """Hears what file descriptors say, as the supervisor does."""

    def __init__(self) -> None:
        self.acts: dict[int, Callable[[], None]] = {}

    def hear(self) -> None:
        while self.acts:
            ready, _, _ = select.select(list(self.acts), [], [], LONG_ENOUGH)
            assert ready
            for fd in ready:
                self.acts[fd]()


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "nvidia-smi"


def test_gpus_are_asked_now_and_then_and_others_gpus_are_left_out(tool: Path) -> None:
    tool.write_text(
        f"#!/bin/sh\necho >> {tool}.n; n=$(wc -l < {tool}.n)\n"
        'echo "GPU-a, $((n * 20)), $((4096 - n * 1024)), 81559"; echo "GPU-x, 99, 9, 10"; echo "GPU-m, [N/A], 1, 2"\n'
    )
    tool.chmod(0o755)
    loop = Loop()
    gpus = Gpus(["GPU-a", "GPU-m"], loop.acts.__setitem__, loop.acts.__delitem__)
    for at in (1.0, 2.0, 31.5):
        gpus.look(at)
        loop.hear()
    (used,) = gpus.used()
    assert used == GpuUse("GPU-a", pytest.approx(0.3), 3072 * MIB, 81559 * MIB), "asked twice; 2 s after is too soon"


def test_nobody_waits_for_a_tool_that_a_gpu_holds(tool: Path) -> None:
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    loop = Loop()
    gpus = Gpus(["GPU-a"], loop.acts.__setitem__, loop.acts.__delitem__)
    gpus.look(1.0)
    gpus.look(100.0)
    assert len(loop.acts) == 1, "one at a time"
    gpus.close()
    gpus.look(200.0)
    assert not loop.acts and gpus.abandoned is not None and gpus.used() == []
    os.waitpid(gpus.abandoned, 0)
