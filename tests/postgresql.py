"""A real PostgreSQL server of its own: it listens on a socket in its folder and nowhere else."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest
from sqlalchemy import make_url

PASSWORD = "open sesame/@:%"
IN_A_URL = "open%20sesame%2F%40%3A%25"


def programs() -> Path:
    """The folder of the server's programs. Skips the test where there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "/nonexistent")]
    if not found[-1].exists():
        pytest.skip("no PostgreSQL server on this machine (Debian: apt install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'dethpc[postgres]')")
    return found[-1].parent


class PostgresServer:
    """Runs from ``with`` to its end. Everybody needs ``PASSWORD``."""

    def __init__(self, *settings: str, initdb: tuple[str, ...] = ()) -> None:
        self._bin = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="dethpc-pg-", dir="/tmp"))  # a short path: it holds a socket
        self._settings = [
            f"unix_socket_directories={self.folder}",
            "listen_addresses=",
            "shared_buffers=16MB",
            *settings,
        ]
        self._initdb = initdb
        self._numbers = itertools.count()
        self.data = "data"
        self._user = "postgres" if os.getuid() == 0 else None  # the server refuses to run as root

    def __enter__(self) -> PostgresServer:
        try:
            secret = self.folder / "password"
            secret.write_text(PASSWORD + "\n")
            for path in (self.folder, secret) if self._user else ():
                shutil.chown(path, self._user)
            how = (
                "-A",
                "scram-sha-256",
                "--pwfile",
                str(secret),
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                *self._initdb,
            )
            self._run("initdb", "-D", "data", "-U", "tester", *how)
            self.start()
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def start(self, env: dict[str, str] | None = None) -> None:
        options = " ".join(f"-c {setting}" for setting in self._settings)
        self._run("pg_ctl", "-D", self.data, "-w", "-l", str(self.folder / "log"), "-o", options, "start", env=env)

    def stop(self) -> None:
        """At once, as in a crash; nothing happens when it does not run."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop", check=False)

    def stop_in_order(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "fast", "stop")

    def give(self, folder: Path) -> None:
        """Make the server the owner of what is in a folder."""
        for path in (folder, *folder.rglob("*")) if self._user else ():
            shutil.chown(path, self._user)

    def restart(self) -> None:
        """As after a crash."""
        with self.away():
            pass

    @contextmanager
    def away(self) -> Iterator[None]:
        """It does not run meanwhile, as after a crash; it runs again for the next test, whatever becomes of this one."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All its processes are stopped, as on a machine that hangs: who connects or asks hears nothing, not even a refusal."""
        server = int((self.folder / self.data / "postmaster.pid").read_text().split()[0])
        os.kill(server, signal.SIGSTOP)  # first: it starts no more
        processes = [server, *(int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split())]
        try:
            for pid in processes[1:]:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)

    def database(self, like: str = "") -> str:
        """Make a database, empty or a copy of the one with the URL ``like``; its URL."""
        name = f"test{next(self._numbers)}"
        copied = ["-T", str(make_url(like).database)] if like else []
        self._run("createdb", "-h", str(self.folder), "-U", "tester", *copied, name)
        return f"postgresql://tester:{IN_A_URL}@/{name}?host={self.folder}"

    def _run(self, program: str, *words: str, check: bool = True, env: dict[str, str] | None = None) -> None:
        subprocess.run(
            [self._bin / program, *words],
            check=check,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=None if check else subprocess.DEVNULL,
            user=self._user,
            env={**os.environ, "PGPASSWORD": PASSWORD, **(env or {})},
        )


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Makes an empty database and gives its URL. The server may lose everything in a power failure, and is quick."""
    with PostgresServer("fsync=off") as server:
        yield server.database
