"""The environment that an experiment's jobs run in: kept when it is created, the same for all its runs, gone with it.

Its file is named by the experiment's uuid, which is known before its number and comes back with a rebuild. No row holds a variable.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from dethpc.domain.environment import MOST_BYTES, Environment
from dethpc.errors import ContextError
from dethpc.master.runs.prepare import job_environment
from dethpc.rundir.files import open_regular
from dethpc.rundir.home import Home


def sent(data: bytes | None) -> Environment | None:
    """What a client sent. Raises ContextError."""
    try:
        return None if data is None else Environment.from_bytes(data)
    except ValueError as error:
        raise ContextError(f"the environment that came with the request cannot be used: {error}") from None


def own() -> Environment:
    """The master's, with its interpreter first on PATH: for experiments of clients that send none, as the published one does."""
    variables = job_environment()
    environ = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
    return Environment.of(environ, python=shutil.which("python3", path=variables["PATH"]) or "", source="master")


def keep(home: Home, queue_id: str, environment: Environment) -> None:
    """For the experiment with this uuid. It is whole on disk when this returns. Raises ContextError, OSError."""
    try:
        data = environment.to_bytes()
    except ValueError as error:
        raise ContextError(str(error)) from None
    path = home.environment(queue_id)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    staged = path.with_suffix(".tmp")
    try:
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    except OSError:
        staged.unlink(missing_ok=True)  # no experiment would ever remove it, and it may hold secrets
        raise


def kept(home: Home, queue_id: str) -> Environment | None:
    """None: it was created by a release that kept none, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError), open_regular(home.environment(queue_id)) as file:
        return Environment.from_bytes(file.read(MOST_BYTES + 1))
    return None


def drop(home: Home, queue_id: str) -> None:
    with contextlib.suppress(OSError):
        home.environment(queue_id).unlink()
