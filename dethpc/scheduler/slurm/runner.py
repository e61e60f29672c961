"""Runs Slurm's commands. ``Runner`` is the seam, for sites that submit as the user and for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dethpc.errors import Refused, SchedulerUnavailable
from dethpc.scheduler.open_files import as_started

_programs: dict[tuple[str, str | None], str] = {}


def find_program(name: str, path: str | None) -> str | None:
    """As ``shutil.which``, which looks into every folder of ``path``: where it was found before it is looked for first."""
    program = _programs.get((name, path))
    if program is None or not os.access(program, os.X_OK):
        program = shutil.which(name, path=path)
        if program is not None:
            _programs[name, path] = program
    return program


@dataclass(frozen=True)
class Completed:
    """``returncode`` is negative when a signal ended the command. Bytes that are not UTF-8 are surrogates in ``stdout``."""

    returncode: int
    stdout: str = ""
    stderr: str = ""


class Runner(Protocol):
    """Any thread may use it."""

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, timeout: float, user: str | None = None
    ) -> Completed:
        """Run a command to its end, with ``env`` and nothing else as its environment. ``timeout`` is in seconds.

        ``user``: the Unix user to run it as; None: the one whose process this is.
        Raises TimeoutError (what the command did until then is unknown), SchedulerUnavailable when there is no such command here,
        Refused when it cannot be run as ``user``.
        """


class SubprocessRunner:
    """Runs the command as a child of this process, so only as this process's user.

    ``path``: where to look for commands, as in PATH; by default PATH of this process, whatever ``env`` says.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, timeout: float, user: str | None = None
    ) -> Completed:
        if user is not None and user != (own := pwd.getpwuid(os.geteuid()).pw_name):
            raise Refused(
                f"{argv[0]} was not run as {user}: this master is {own}'s and acts on Slurm as {own} alone; "
                f"{user} can start a master with `det master up`"
            )
        program = find_program(argv[0], self._path)
        if program is None:
            raise SchedulerUnavailable(f"{argv[0]} is not on PATH: is this a machine of the cluster?")
        process = subprocess.Popen(
            as_started([program, *argv[1:]]),
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
        )
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)  # a site's wrapper waits for the command that it started
                if isinstance(error, subprocess.TimeoutExpired):
                    raise TimeoutError(f"{argv[0]} gave no answer in {timeout:g} s") from None
                raise
        return Completed(process.returncode, stdout, stderr)
