"""Processes of this machine, as /proc shows them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

MARK = "DETHPC_LOCAL_MARK"
"""Environment variable by which a job's processes are known even when nothing else ties them to it."""


def identity(pid: int) -> str | None:
    """Names one process for ever: process ids are used again, also after a reboot. None when it is gone or a zombie."""
    stat = _stat(pid)
    if stat is None or stat[0] in "ZX":
        return None
    return f"{boot()}:{pid}:{stat[19]}"


def alive(name: str | None) -> bool:
    """Whether the process with this identity still runs."""
    return bool(name) and identity(pid_of(name or "")) == name


def pid_of(name: str) -> int:
    """The process id within an identity."""
    return int(name.split(":")[1])


def descendants(root: int) -> list[int]:
    """Living processes below ``root``, parents before children. Orphans below a subreaper count, zombies do not."""
    children: dict[int, list[int]] = {}
    dead = set()
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(pid)
            if stat[0] in "ZX":
                dead.add(pid)
    below = list(children.get(root, ()))
    for pid in below:
        below.extend(children.get(pid, ()))
    return [pid for pid in below if pid not in dead]


def marked(mark: str) -> list[int]:
    """Living processes that were started with ``MARK`` set to this."""
    variable = f"{MARK}={mark}".encode()
    pids = []
    for pid in _pids():
        try:
            variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's
            continue
        if variable in variables and identity(pid):
            pids.append(pid)
    return pids


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # gone; or it has become another user
            pass


def kill_all(find: Callable[[], list[int]], patience: float = 5.0) -> None:
    """KILL what ``find`` finds until it finds nothing, for a process may start another before it dies."""
    deadline = time.monotonic() + patience
    while (pids := find()) and time.monotonic() < deadline:
        send(pids, signal.SIGKILL)
        time.sleep(0.02)


def be_subreaper(enabled: bool) -> None:
    """Whether those descendants of this process that become orphans are its children from then on."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(enabled))


def die_with_parent() -> None:
    """KILL this process when its parent ends. For use between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdigit())


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on: the second, the name, may hold anything."""
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def boot() -> str:
    """Which start of this machine it is."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
