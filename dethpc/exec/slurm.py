"""What Slurm says on the node of a job, asked when it is needed for the first time."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from typing import Mapping

SECONDS = 20.0
KILL_WAIT = 30.0  # Slurm's own default


def job_id() -> str:
    """ "" where this is no job of Slurm's."""
    return os.environ.get("SLURM_JOB_ID", "")


def own_step() -> str:
    """Id of the step that this process is in, as squeue prints it; "" where nobody can tell. What this process was started with
    says so: its variables have been made those of the batch script since."""
    try:
        with open("/proc/self/environ", "rb") as file:
            first = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
    except OSError:
        return ""
    step = first.get(b"SLURM_STEP_ID", b"").decode()
    return f"{job_id()}.{step}" if step else ""


def run(*words: str) -> str:
    """What a command of Slurm's prints. Raises: OSError, subprocess.SubprocessError."""
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=True
    ).stdout


@functools.lru_cache(maxsize=1)
def _config() -> Mapping[str, str]:
    """Empty where Slurm does not answer, as in a container."""
    try:
        lines = run("scontrol", "show", "config").splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    return {name.strip(): value.strip() for name, equals, value in (line.partition("=") for line in lines) if equals}


def kill_wait() -> float:
    """Seconds between TERM and KILL."""
    found = re.match(r"\d+", _config().get("KillWait", ""))
    return float(found[0]) if found else KILL_WAIT


def signals_this_process_alone() -> bool:
    """Whether a signal for a step comes to its first process and not to those below it. False where nobody can tell."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            if "/step_" in file.read():
                return True
    except OSError:
        pass
    return _config().get("ProctrackType", "").endswith(("/cgroup", "/pgid"))
