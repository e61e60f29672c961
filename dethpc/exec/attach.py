"""``python3 -m dethpc.exec.attach ATTEMPT_DIR [COMMAND...]``: a shell on this node beside the user code of an attempt.

It has the environment and the working directory of the entrypoint, as the kernel shows them. Nothing is asked of the attempt.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional, Sequence, Tuple

from dethpc.exec.service import in_use_file
from dethpc.rundir.layout import AttemptDir
from dethpc.rundir.process import started

INFO = "DETHPC_INFO"


def environments(attempt: AttemptDir) -> Iterator[Tuple[int, Dict[str, str]]]:
    """User code of the attempt on this node: process id and environment. One machine may be several nodes of Slurm."""
    node = os.environ.get("SLURMD_NODENAME")
    infos = {str(attempt.info(int(name[5:-5]))) for name in os.listdir(attempt.path) if _is_info(name)}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid != os.geteuid():
                continue
            text = Path("/proc", name, "environ").read_bytes().decode(errors="surrogateescape")
            environ = dict(entry.partition("=")[::2] for entry in text.split("\0") if "=" in entry)
            if environ.get(INFO) in infos and node in (None, environ.get("DET_AGENT_ID")):
                yield int(name), environ


def _is_info(name: str) -> bool:
    return name.startswith("info-") and name.endswith(".json") and name[5:-5].isdigit()


def entrypoint(attempt: AttemptDir) -> Optional[Tuple[int, Dict[str, str]]]:
    """The oldest process of the user code; None where none runs on this node."""
    running = [(started(pid) or 0, pid, environ) for pid, environ in environments(attempt)]
    return min(running, key=lambda one: one[:2])[1:] if running else None


def hold(environ: Mapping[str, str]) -> None:
    """Count as a use of the shell task until the shell, and what it starts, have ended: they inherit the lock."""
    with contextlib.suppress(OSError, KeyError):
        file = os.open(in_use_file(environ), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        os.set_inheritable(file, True)


def main(arguments: Sequence[str]) -> int:
    """Does not return where there is user code: the shell takes the place of this process. 1 where there is none."""
    attempt, command = AttemptDir(Path(arguments[0])), list(arguments[1:])
    process = entrypoint(attempt) if attempt.path.is_dir() else None
    if process is None:
        sys.stderr.write(f"dethpc: nothing of {attempt.path} runs on this node: it has not begun, or has ended\n")
        return 1
    pid, environ = process
    with contextlib.suppress(OSError):
        os.chdir(os.readlink(f"/proc/{pid}/cwd"))
    hold(environ)
    environ["TERM"] = os.environ.get("TERM", environ.get("TERM", "dumb"))
    shell = environ.get("SHELL") or "/bin/sh"
    argv = [shell, "-c", command[0]] if len(command) == 1 else command or [shell]
    os.execvpe(argv[0], argv, environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
