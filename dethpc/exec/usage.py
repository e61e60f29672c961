"""Measures how much this node's part of an attempt uses of its allocated CPU time, memory and GPUs.

CPU time is the kernel's account of the processes that have ended, and of those that live. Memory is looked at every few seconds, as
Slurm's own accounting does it: what all processes hold for themselves, and the shared memory of the one that has most.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterable, Mapping, Optional, Sequence

from dethpc.domain.attempts.usage import GpuUse, NodeUse
from dethpc.exec.supervision import processes
from dethpc.rundir.files import sealed, write_json
from dethpc.rundir.process import stat_fields

LOOK_SECONDS = 10.0
GPU_SECONDS = 30.0
FIRST_SECONDS = 30.0  # until what was measured is written for the first time
WRITE_SECONDS = 600.0  # between two times, at most; a node that dies keeps what it has written

_TICKS = os.sysconf("SC_CLK_TCK")
_QUERY = ["--query-gpu=uuid,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits"]


class Meter:
    """Of one node's part of an attempt. It measures from the moment in which it is made."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path = path
        self._cpus, self._memory_given = cpus_given(environ), memory_given(environ)
        self._job = _Job(environ)
        self._began = time.monotonic()
        self._look_at, self._write_at = self._began + 1.0, self._began + FIRST_SECONDS
        self._memory = 0
        self._living = 0.0  # CPU seconds of the descendants that live
        self.gpus: Optional[Gpus] = None

    def look(self, sessions: Iterable[int] = ()) -> None:
        """Measure, and write what was measured, when it is time for that. Costs nothing otherwise."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        self._measure(sessions)
        if self.gpus is not None:
            self.gpus.look(now)
        if now >= self._write_at:
            self._write_at = now + min(WRITE_SECONDS, now - self._began)
            self._write()

    def write(self) -> None:
        """Measure and write now. A run directory that cannot be written has other complaints than this."""
        self._measure(())
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            write_json(self._path, sealed(self.use().to_json()), durable=False)

    def use(self) -> NodeUse:
        """What was used so far."""
        ours, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = ours.ru_utime + ours.ru_stime + ended.ru_utime + ended.ru_stime
        return NodeUse(
            seconds=time.monotonic() - self._began,
            cpu_seconds=cpu + self._living + self._job.cpu_seconds,
            # A process that was there between two looks alone counts by the kernel's word.
            memory=max(self._memory, ended.ru_maxrss * 1024),
            cpus=self._cpus,
            memory_given=self._memory_given,
            gpus=self.gpus.used() if self.gpus is not None else [],
            at=time.time(),
        )

    def _measure(self, sessions: Iterable[int]) -> None:
        below = processes.descendants(sessions)
        beside = self._job.others({os.getpid(), *below})
        self._living = sum(map(_cpu_seconds_below, below))
        own = [_memory(pid) for pid in (os.getpid(), *below, *beside)]
        held = sum(anonymous for anonymous, _ in own) + max(shared for _, shared in own)
        self._memory = max(self._memory, held)


class _Job:
    """The processes of the scheduler's job on this node that do not descend from this one: tasks that an srun inside the
    entrypoint starts are Slurm's own children."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        ours = environ.get("SLURM_JOB_ID", "")
        element = environ.get("DETHPC_ELEMENT", "").startswith(f"{ours}=")  # of a job array, known by another name
        if environ.get("DETHPC_JOB_ID", ours) != ours and not element:
            ours = ""  # the local scheduler's, which has no such tasks
        self._marks = [f"SLURM_JOB_ID={ours}".encode()] if ours else []
        # Several nodes may be one machine, and so may several clusters, each of which counts its jobs from 1.
        for name in ("SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_CONF") if ours else ():
            if environ.get(name):
                self._marks.append(f"{name}={environ[name]}".encode())
        self._used: dict[
            tuple[int, int], float
        ] = {}  # process id and start -> CPU seconds; nobody else counts them for us

    @property
    def cpu_seconds(self) -> float:
        return sum(self._used.values())

    def others(self, counted: set[int]) -> list[int]:
        """Their process ids; ``counted`` are left out."""
        pids = []
        for name in os.listdir("/proc") if self._marks else ():
            if not name.isdigit() or int(name) in counted or not self._has(name):
                continue
            fields = stat_fields(int(name))
            if fields:
                pids.append(int(name))
                self._used[int(name), int(fields[19])] = (int(fields[11]) + int(fields[12])) / _TICKS
        return pids

    def _has(self, pid: str) -> bool:
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.getuid():
                return False
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            return False
        return all(mark in variables for mark in self._marks)


def _cpu_seconds_below(pid: int) -> float:
    """Of the process, and of those of its children that have ended."""
    return sum(map(int, stat_fields(pid)[11:15])) / _TICKS


def _memory(pid: int) -> tuple[int, int]:
    """Bytes that the process holds for itself, and bytes of shared memory."""
    sizes = {b"RssAnon": 0, b"RssShmem": 0}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b":")
            if name in sizes:
                sizes[name] = int(rest.split()[0]) * 1024
    return sizes[b"RssAnon"], sizes[b"RssShmem"]


# --- what the scheduler gave


def cpus_given(environ: Mapping[str, str]) -> Optional[int]:
    """CPUs of this node; None where Slurm has not said it."""
    return _whole(environ, "SLURM_CPUS_ON_NODE")


def memory_given(environ: Mapping[str, str]) -> Optional[int]:
    """Bytes of this node's memory; None where Slurm sets no limit."""
    megabytes = _whole(environ, "SLURM_MEM_PER_NODE")
    for per, count in (("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"), ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE")):
        per_unit, many = _whole(environ, per), _whole(environ, count)
        if megabytes is None and per_unit is not None and many is not None:
            megabytes = per_unit * many
    return None if megabytes is None else megabytes << 20


def _whole(environ: Mapping[str, str], name: str) -> Optional[int]:
    """A number above 0; ``--mem=0`` means all there is, of which Slurm does not say how much."""
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


# --- GPUs


class Gpus:
    """Asks NVIDIA's tool now and then, and never waits for it: its answer arrives as the processes' output does.

    ``listen`` calls a function whenever a file descriptor is readable; ``forget`` ends that.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        listen: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
    ) -> None:
        self._listen, self._forget = listen, forget
        self._tool = shutil.which("nvidia-smi") if uuids else None
        self._looks = {uuid: _Looks() for uuid in uuids}
        self._next = 0.0
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._answer = b""
        self.abandoned: Optional[int] = (
            None  # a process id: what a broken GPU holds cannot be ended, and nobody waits for it
        )

    def used(self) -> list[GpuUse]:
        return [
            GpuUse(uuid, looks.busy / looks.count, looks.memory, looks.total)
            for uuid, looks in self._looks.items()
            if looks.count
        ]

    def look(self, now: float) -> None:
        if self._tool is None or self._child is not None or now < self._next:
            return
        self._next = now + GPU_SECONDS
        try:
            self._child = subprocess.Popen(
                [self._tool, *_QUERY], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            self._tool = None
            return
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self._listen(self._child.stdout.fileno(), self._hear)

    def close(self) -> None:
        """Ask no more, and wait for nothing."""
        self._tool = None
        if self._child is not None:
            self._child.kill()
            self.abandoned = self._child.pid
            self._end()

    def _hear(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        data = self._child.stdout.read()
        if data:
            self._answer += data
        elif data is not None:
            for line in self._answer.decode(errors="replace").splitlines():
                self._take(line)
            self._end()

    def _end(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        self._forget(self._child.stdout.fileno())
        self._child.stdout.close()
        self._child.returncode = 0  # the supervisor, which waits for all processes, collects it
        self._child, self._answer = None, b""

    def _take(self, line: str) -> None:
        fields = [word.strip() for word in line.split(",")]
        if len(fields) == 4 and fields[0] in self._looks:
            with contextlib.suppress(ValueError):  # "[N/A]" of a GPU that is divided
                self._looks[fields[0]].take(*map(float, fields[1:]))


class _Looks:
    def __init__(self) -> None:
        self.count, self.busy, self.memory, self.total = 0, 0.0, 0, 0

    def take(self, percent: float, used: float, total: float) -> None:
        """``used`` and ``total`` in MiB."""
        self.count += 1
        self.busy += percent / 100
        self.memory, self.total = max(self.memory, int(used) << 20), int(total) << 20
