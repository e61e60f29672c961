"""A real PostgreSQL, of this test session alone."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Makes an empty database and gives its URL. The server listens on a socket in its own folder and nowhere else."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "/nonexistent")]
    if not found[-1].exists():
        pytest.skip("no PostgreSQL server on this machine (Debian: apt install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'dethpc[postgres]')")
    bin = found[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="dethpc-pg-", dir="/tmp"))  # a short path: it holds a socket
    user = {"user": "postgres"} if os.getuid() == 0 else {}  # the server refuses to run as root
    if user:
        shutil.chown(folder, "postgres")

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)  # type: ignore[call-overload]

    try:
        run(bin / "initdb", "-D", "data", "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=16MB"
        run(bin / "pg_ctl", "-D", "data", "-w", "-l", folder / "log", "-o", options, "start")
        try:
            numbers = itertools.count()

            def database() -> str:
                name = f"test{next(numbers)}"
                run(bin / "createdb", "-h", folder, "-U", "tester", name)
                return f"postgresql://tester@/{name}?host={folder}"

            yield database
        finally:
            run(bin / "pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
