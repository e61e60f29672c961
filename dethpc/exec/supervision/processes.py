"""Descendants of this process: lists, signals and reaps them, so that none outlives it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from typing import Iterable, Mapping, Optional, Sequence

from dethpc.rundir.process import stat_fields

PR_SET_CHILD_SUBREAPER = 36

_core_limit = resource.getrlimit(resource.RLIMIT_CORE)
_adopts = False  # every descendant is then a child, or below one


def dump_no_core() -> None:
    """This process holds the run's secrets. User code that it starts keeps the limit that it came with."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, _core_limit[1]))


def adopt_orphans() -> bool:
    """From now on a descendant whose parent dies becomes this process's child instead of init's. False where the
    kernel or this Python cannot do that; then a session of its own is what keeps descendants findable."""
    global _adopts
    try:
        import ctypes  # a Python built without libffi lacks it

        _adopts = bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        _adopts = False
    return _adopts


def start(argv: Sequence[str], *, cwd: str, env: Mapping[str, str], umask: int) -> subprocess.Popen[bytes]:
    """Start user code in a session of its own, its outputs on pipes, with every signal's default disposition and none blocked,
    as slurmstepd starts a task. Only for a process without threads. Raises: OSError."""
    return subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        umask=umask,
        preexec_fn=_as_user_code,
    )


def _as_user_code() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, _core_limit)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def descendants(sessions: Iterable[int] = ()) -> list[int]:
    """Living processes below this one, and those of the given ``sessions``; zombies do not count."""
    if (
        _adopts and _childless()
    ):  # the usual end: a look at each of a large node's processes takes longer than all else there
        return []
    parents: dict[int, int] = {}
    alive: set[int] = set()
    session_ids = set(sessions)
    members: set[int] = set()
    for name in os.listdir("/proc"):
        stat = _stat(name) if name.isdigit() else None
        if stat is not None:
            state, parent, session = stat
            parents[int(name)] = parent
            if state not in "ZX":
                alive.add(int(name))
            if session in session_ids:
                members.add(int(name))
    me = os.getpid()
    for pid in parents:
        line, above = [], pid
        while above in parents and above != me and above not in members:
            line.append(above)
            above = parents[above]
        if above == me or above in members:
            members.update(line)
    return sorted((members & alive) - {me})


def _childless() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _stat(pid: str) -> Optional[tuple[str, int, int]]:
    try:
        fields = stat_fields(pid)
        return fields[0].decode(), int(fields[1]), int(fields[3])
    except (IndexError, ValueError):
        return None  # it has ended meanwhile


def children(pid: int) -> list[int]:
    """Living children of ``pid``."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        stat = _stat(name)
        if stat is not None and stat[1] == pid and stat[0] not in "ZX":
            pids.append(int(name))
    return pids


def is_own_child(pid: int) -> bool:
    """Whether ``pid`` is a child of this process that has not been collected."""
    stat = _stat(str(pid))
    return stat is not None and stat[1] == os.getpid()


def arguments(pid: int) -> list[str]:
    """The argument vector of ``pid``; empty once it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def is_shell_of(pid: int) -> bool:
    """Whether ``pid`` is still the shell that was put round an entrypoint's words, and has not become their last command."""
    return arguments(pid)[:2] == ["/bin/sh", "-c"]


def withstand_term(pids: Iterable[int]) -> list[int]:
    """Those of ``pids`` that TERM does not end: they catch, ignore or block it."""
    return [pid for pid in pids if any(_signal_set(pid, name, signal.SIGTERM) for name in (b"Cgt", b"Ign", b"Blk"))]


def catches_term(pid: int) -> bool:
    """Whether ``pid`` has a handler for TERM."""
    return _signal_set(pid, b"Cgt", signal.SIGTERM)


def _signal_set(pid: int, name: bytes, number: int) -> bool:
    """Whether signal ``number`` is in the set ``name`` of ``/proc/PID/status``; False once the process has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            _, label, rest = file.read().partition(b"\nSig" + name + b":")
    except OSError:
        return False
    return bool(label) and bool(int(rest.split(None, 1)[0], 16) >> number - 1 & 1)


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> dict[int, int]:
    """Collect every child that has ended: process id -> wait status."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status
