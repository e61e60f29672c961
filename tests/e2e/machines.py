"""Shells and machines that differ in what of Slurm they see: one without its commands, and a second machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.conftest import User
from tests.waiting import LONG_ENOUGH

SLURM_COMMANDS = ("sbatch", "squeue", "sinfo", "scontrol", "scancel", "sacct", "srun", "salloc", "sdiag", "sprio")


def slurm_apart(folder: Path) -> tuple[Path, Path]:
    """Two folders for PATH, made in ``folder``: Slurm's commands, named ``slurm``, and all others."""
    mine, rest = folder / "slurm", folder / "bin"
    mine.mkdir(parents=True)
    rest.mkdir()
    for system in ("/bin", "/usr/bin"):
        for name in os.listdir(system):
            place = (mine if name in SLURM_COMMANDS else rest) / name
            if not place.exists():
                place.symlink_to(Path(system) / name)
    return mine, rest


def without_slurm(user: User) -> User:
    """The same user in cron, or by ``ssh login1 det ...``."""
    path = ":".join(folder for folder in user.env["PATH"].split(":") if not folder.endswith("/slurm"))
    env = {name: value for name, value in user.env.items() if name != "SLURM_CONF"}
    return User(user.folder, user.home, {**env, "PATH": path})


APART = ("--pid", "--mount-proc", "--uts", "--net")
"""A machine of its own as far as host name, processes and network go."""


class Machine:
    """A second machine: commands run there, and end with it. ``apart``: in what it is one, as options of unshare."""

    def __init__(self, user: User, name: str, apart: Sequence[str] = APART) -> None:
        self._user = user
        unshare = ["unshare", "--fork", *apart, "--kill-child"]
        script = f"hostname {name}; ip link set lo up; echo up; exec sleep infinity"
        self._init = subprocess.Popen([*unshare, "sh", "-c", script], stdout=subprocess.PIPE, text=True, env=user.env)
        assert self._init.stdout is not None and self._init.stdout.readline() == "up\n"
        (child,) = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
        spaces = [option.replace("--mount-proc", "--mount") for option in apart]
        self._enter = ["nsenter", "--target", child, *spaces, f"--wd={user.folder}"]
        self.errors = ""

    def det(self, *words: str, code: int | None = 0, timeout: float = LONG_ENOUGH) -> str:
        command = [*self._enter, self._user.python, "-m", "dethpc.cli", *words]
        done = subprocess.run(command, env=self._user.env, capture_output=True, text=True, timeout=timeout, check=False)
        assert code is None or done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        self.errors = done.stderr
        return done.stdout

    def end(self) -> None:
        self._init.kill()
        self._init.wait()
