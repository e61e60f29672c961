"""Which processes belong to a private cluster, and how to end exactly those."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")


def read_pid_file(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def is_daemon(pid: int, name: str, folder: Path) -> bool:
    """Whether the pid still is what its pid file says, and not a later process with the same number."""
    command = _read(pid, "cmdline")
    ours = str(folder).encode()
    return alive(pid) and name.split("-")[0].encode() in command and (ours in command or ours in _read(pid, "environ"))


def job_processes(folder: Path, node: str | None = None) -> list[int]:
    """Pids of slurmstepd and of job processes of the cluster (of one of its nodes), but never of the caller or its ancestors."""
    conf = f"SLURM_CONF={folder}/slurm.conf".encode()
    spare = _ancestors(os.getpid())
    parents: dict[int, int] = {}
    roots: set[int] = set()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        parents[pid] = _parent(pid)
        environment = _read(pid, "environ").split(b"\0")
        if conf not in environment:
            continue
        # A shell or a master that merely uses the cluster has SLURM_CONF too; only what slurmd started knows its node.
        at = next((v.partition(b"=")[2].decode() for v in environment if v.startswith(b"SLURMD_NODENAME=")), None)
        if at is not None and node in (None, at):
            roots.add(pid)
    for pid in [*roots]:  # the slurmstepd above a task
        above = parents.get(pid, 0)
        if _read(above, "comm").startswith(b"slurmstepd"):
            roots.add(above)
    if node is None:
        roots.update(pid for pid in parents if _is_stepd_of(pid, folder))
    descendants = set(roots)
    while more := {pid for pid, above in parents.items() if above in descendants} - descendants:
        descendants |= more
    return sorted(pid for pid in descendants - spare if alive(pid))


def kill(pids: Iterable[int]) -> None:
    """SIGKILL, and wait until they are gone."""
    pids = list(pids)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _gone(pids)


def terminate(pid: int) -> None:
    """SIGTERM, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
    _gone([pid])


def _gone(pids: list[int], timeout: float = 30) -> None:
    end = time.monotonic() + timeout
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)


def _is_stepd_of(pid: int, folder: Path) -> bool:
    if not _read(pid, "comm").startswith(b"slurmstepd"):
        return False
    try:
        where = os.readlink(_PROC / str(pid) / "cwd")
    except OSError:
        return False
    return Path(where).is_relative_to(folder.resolve())


def alive(pid: int) -> bool:
    stat = _read(pid, "stat")
    return stat != b"" and stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def _parent(pid: int) -> int:
    stat = _read(pid, "stat")
    return int(stat.rpartition(b")")[2].split()[1]) if stat else 0


def _ancestors(pid: int) -> set[int]:
    pids = set()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        pid = _parent(pid)
    return pids


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
