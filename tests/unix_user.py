"""An ordinary user of this machine, as clusters have them: made by root for the tests, with all that it owns gone at the end."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
_SYSTEM = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class UnixUser:
    """``folder`` is the user's, and every user may enter it. ``python``: one that the user may run, with all that dethpc needs."""

    name: str
    uid: int
    gid: int
    folder: Path
    python: str

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of the user's shell."""
        path = ":".join([str(ROOT), *site.getsitepackages()])
        home, programs = str(self.folder / "home"), f"{Path(self.python).parent}:{_SYSTEM}"
        names = {"HOME": home, "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
        return {**names, "PATH": programs, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    @property
    def become(self) -> dict[str, Any]:
        """For subprocess."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def owns(self, folder: Path) -> None:
        """Give the user a folder and all that is in it."""
        subprocess.run(["chown", "-R", "-h", f"{self.uid}:{self.gid}", str(folder)], check=True)

    def processes(self) -> list[int]:
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _owner(path) == self.uid]


@contextmanager
def unix_user() -> Iterator[UnixUser]:
    """A user with a home directory and a range of further ids (/etc/subuid). Skips where none can be made."""
    if os.geteuid() or shutil.which("useradd") is None:
        pytest.skip("root alone makes a user of this machine")
    name = f"dethpc-{secrets.token_hex(3)}"
    with tempfile.TemporaryDirectory(prefix="unix-user-", ignore_cleanup_errors=True) as parent:
        folder = Path(parent)
        folder.chmod(0o755)
        made = subprocess.run(
            ["useradd", "--create-home", "--home-dir", str(folder / "home"), "--shell", "/bin/bash", name]
        )
        if made.returncode:
            pytest.skip("useradd makes no user here")
        try:
            entry = pwd.getpwnam(name)
            user = UnixUser(name, entry.pw_uid, entry.pw_gid, folder, "")
            python = next((each for each in (sys.executable, "/usr/bin/python3") if _runs(each, user)), None)
            if python is None:
                pytest.skip("an ordinary user may run no Python here that is of the release of these tests'")
            yield UnixUser(name, entry.pw_uid, entry.pw_gid, folder, python)
        finally:
            for pid in user.processes():
                subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
            wait_until(lambda: not user.processes())
            subprocess.run(["userdel", "--force", name], check=False, capture_output=True)


def _runs(python: str, user: UnixUser) -> bool:
    """Compiled packages are for one release alone."""
    code = f"import sys, dethpc.cli, sqlalchemy, pydantic; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    try:
        done = subprocess.run([python, "-c", code], env=user.env, cwd="/", capture_output=True, **user.become)
    except OSError:
        return False
    return done.returncode == 0


def _owner(process: Path) -> int | None:
    """None for one that has ended, and whose end nobody has asked for yet."""
    try:
        ended = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return None if ended else process.stat().st_uid
    except OSError:
        return None
