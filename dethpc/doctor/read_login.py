"""Reads the facts of this machine. A fact that cannot be read stays unknown."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from dethpc.doctor.facts import Login
from dethpc.exec import sshd
from dethpc.rundir.filesystem import filesystem, mount
from dethpc.rundir.home import Home
from dethpc.storage import CheckpointStore

_PACKAGES = ("determined", "dethpc", "submitit", "pyslurm")


def read_login(home: Path, store: CheckpointStore | None, munge_socket: str | None) -> Login:
    """Facts of this machine.

    ``store``: where checkpoints are, if that is not ``home``. ``munge_socket``: where Slurm authenticates; "" for munge's
    usual place, None when it uses something else.
    """
    place = existing(home)
    space = os.statvfs(place)
    return Login(
        host=socket.gethostname(),
        home=str(home),
        filesystem=filesystem(place),
        python=sys.version_info[:2],
        packages={name: version for name in _PACKAGES if (version := _version(name))},
        home_mode=_mode(home),
        token_mode=_mode(Home(home).token),
        locks=_locks(place),
        storage="" if store is None else str(store),
        storage_problem="" if store is None else _writing(store),
        free_bytes=space.f_bavail * space.f_frsize,
        free_files=space.f_favail if space.f_files else None,
        quota=quota(_output("quota", "-w", "-p", fails=True) or "", mount(place)[0]),
        umask=_umask(),
        kills_at_logout=_yes(_output("loginctl", "show-logind", "--property=KillUserProcesses", "--value")),
        lingers=_yes(_output("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")),
        cpu_seconds=_limit(resource.RLIMIT_CPU),
        memory_limit=_memory_limit(),
        munge=None if munge_socket is None else _munge(munge_socket),
        job_python=shutil.which("python3") or "python3",
        lacking=list(_lacking()),
    )


def existing(path: Path) -> Path:
    """``path``, or the folder above it in which it would be made."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def quota(output: str, device: str) -> str:
    """What ``quota -w -p`` says is over a limit on ``device`` or within 5 % of it, in words; empty if nothing is."""
    usage = []
    for line in output.splitlines():
        columns = line.split()
        if len(columns) != 9 or columns[0] != device:
            continue
        for used, soft, hard, what in ((*columns[1:4], "KiB"), (*columns[5:8], "files")):
            limit = min((int(number) for number in (soft, hard) if number.isdigit() and int(number)), default=0)
            count = int(used.rstrip("*")) if used.rstrip("*").isdigit() else 0
            if limit and count > 0.95 * limit:
                usage.append(f"{count} of {limit} {what}")
    return ", ".join(usage)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return None


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _locks(folder: Path) -> str:
    """What is wrong with POSIX locks there, which are what SQLite takes."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _writing(store: CheckpointStore) -> str:
    """Why no checkpoint can be written; empty if one can."""
    try:
        with store.mark():
            return ""
    except OSError as error:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _limit(kind: int) -> int | None:
    soft, hard = resource.getrlimit(kind)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    return min(limits) if limits else None


def _memory_limit() -> int | None:
    """The tightest of the control groups that this process is in."""
    with contextlib.suppress(OSError, IndexError):
        group = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        limits = [_number(place / "memory.max") for place in (folder, *folder.parents) if place != place.parent]
        return min((limit for limit in limits if limit), default=None)
    return None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _munge(at: str) -> str:
    """What is wrong with munge here, or nothing."""
    if shutil.which("munge") is None:
        return "no munge on PATH"
    argv = ["munge", "-n", *([f"--socket={at}"] if at else [])]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _lacking() -> Iterator[str]:
    """Programs that jobs of this shell would not have, as far as this machine shows it."""
    for name, module in (("JupyterLab", "jupyterlab"), ("TensorBoard", "tensorboard")):
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        if _output("python3", "-I", "-c", code) is None:
            yield name
    if not sshd.program("sshd"):
        yield "sshd"


def _output(*argv: str, fails: bool = False) -> str | None:
    """``fails``: a failure may print what matters, too."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False)
        if done.returncode == 0 or fails:
            return done.stdout
    return None


def _yes(answer: str | None) -> bool | None:
    return {"yes": True, "no": False}.get((answer or "").strip())
