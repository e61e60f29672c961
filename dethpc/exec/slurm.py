"""Slurm's answers on the node of a job, requested when first needed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import IO, Mapping, Optional

SECONDS = 20.0
KILL_WAIT = 30.0  # Slurm's own default
RETRY_SECONDS = 2.0


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


def run(*argv: str) -> str:
    """What a command of Slurm's prints. Raises: OSError, subprocess.SubprocessError."""
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=True
    ).stdout


class Configuration:
    """What ``scontrol show config`` says. It is asked in the background: a controller that signals many jobs answers late, and
    while a node waits for it, it passes no signal on and reads no output."""

    def __init__(self) -> None:
        self._settings: Optional[Mapping[str, str]] = None
        self._output: Optional[IO[bytes]] = None
        self._content = b""
        self._ask_at = 0.0

    def look(self) -> Optional[Mapping[str, str]]:
        """None where there is no answer yet; without one it is asked again. Empty where Slurm's commands are not to be had."""
        if self._settings is None:
            if self._output is None and time.monotonic() >= self._ask_at:
                self._ask()
            if self._output is not None:
                self._read(self._output)
        return self._settings

    def _ask(self) -> None:
        try:
            child = subprocess.Popen(
                ["scontrol", "show", "config"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError:
            self._settings = {}
            return
        child.returncode = 0  # the supervisor of this process reaps its children
        assert child.stdout is not None
        self._output, self._content, self._ask_at = child.stdout, b"", time.monotonic() + RETRY_SECONDS
        os.set_blocking(self._output.fileno(), False)

    def _read(self, output: IO[bytes]) -> None:
        try:
            while data := os.read(output.fileno(), 1 << 16):
                self._content += data
        except BlockingIOError:
            return
        output.close()
        self._output = None
        lines = (line.partition("=") for line in self._content.decode(errors="replace").splitlines())
        settings = {name.strip(): value.strip() for name, equals, value in lines if equals}
        self._settings = settings if "KillWait" in settings else None


configuration = Configuration()


def kill_wait() -> Optional[float]:
    """Seconds between TERM and KILL; None as long as Slurm has not answered."""
    settings = configuration.look()
    if settings is None:
        return None
    seconds = re.match(r"\d+", settings.get("KillWait", ""))
    return float(seconds[0]) if seconds else KILL_WAIT


def signals_this_process_alone() -> Optional[bool]:
    """Whether a signal for a step comes to its first process and not to those below it; None as long as Slurm has not answered.
    False where nobody can tell."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            if "/step_" in file.read():
                return True
    except OSError:
        pass
    settings = configuration.look()
    return None if settings is None else settings.get("ProctrackType", "").endswith(("/cgroup", "/pgid"))
