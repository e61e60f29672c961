"""The probe that a small job runs on a compute node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dethpc.exec import sshd
from dethpc.storage import CheckpointStore

ERRORS = {81: "DETHPC_HOME is not there", 82: "this Python is not there"}
"""Exit codes of the script that starts the probe: where nothing is shared no file can tell."""


def probe(
    folder: str,
    store: tuple[CheckpointStore, str] | None,
    python: str,
    master: tuple[str, int] | None,
    containers: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Look around. ``folder``, in DETHPC_HOME, has a file ``locked`` that the login node keeps locked.

    ``store``: where checkpoints are, and the mark that the login node has left there. ``containers``: by runtime, the
    command that starts the smallest one.
    """
    return {
        "clock": time.time(),
        "name": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "python": _python(python),
        "home": _write(Path(folder)),
        "storage": "" if store is None else _find(*store),
        "lock": _lock(Path(folder) / "locked"),
        "master": "" if master is None else _connect(master),
        "containers": {name: _start(command) for name, command in containers.items()},
        "devices": next((os.environ[name] for name in _DEVICES if name in os.environ), None),
        "sshd": bool(sshd.program("sshd")),
        "free_bytes": shutil.disk_usage(
            os.environ.get("DETHPC_WORKDIR_BASE") or os.environ.get("TMPDIR") or "/tmp"
        ).free,
    }


_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")


def _start(command: Sequence[str]) -> str:
    """Why it does not start, with what this node lacks that containers commonly need."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    message = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1][-300:]
    lacking = list(_lacking())
    return f"{message} (this node has {', '.join(lacking)})" if lacking else message


def _lacking() -> Iterator[str]:
    limits = {
        "user/max_user_namespaces": "no user namespaces",
        "kernel/unprivileged_userns_clone": "none for plain users",
    }
    for name, sentence in limits.items():
        with contextlib.suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == "0":
                yield sentence
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        yield "no /dev/fuse to open"
    user = pwd.getpwuid(os.getuid()).pw_name
    for path in ("/etc/subuid", "/etc/subgid"):
        try:
            lines = Path(path).read_text().splitlines()
        except OSError:
            lines = []
        if not any(line.startswith((f"{user}:", f"{os.getuid()}:")) for line in lines):
            yield f"no line of {user} in {path}"
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        yield "no cgroups of version 2"
    if not any(Path(path).is_file() and Path(path).stat().st_mode & stat.S_ISUID for path in _SETUID):
        yield "no setuid starter of Apptainer"


_SETUID = ("/usr/lib/x86_64-linux-gnu/apptainer/bin/starter-suid", "/usr/libexec/apptainer/bin/starter-suid")


def _python(python: str) -> str:
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    try:
        done = subprocess.run(
            [python, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"error: {error}"
    return done.stdout.strip() if done.returncode == 0 else f"error: {done.stderr.strip()[-200:]}"


def _write(folder: Path) -> str:
    try:
        with open(folder / "written", "w") as file:
            file.write(socket.gethostname())
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _find(store: CheckpointStore, mark: str) -> str:
    try:
        store.find_mark(mark)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _lock(path: Path) -> str:
    """``held`` if the other machine's lock is felt here."""
    try:
        with open(path, "r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError as error:
        return error.strerror or str(error)
    return "free"


def _connect(address: tuple[str, int]) -> str:
    try:
        socket.create_connection(address, timeout=10).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
