"""``/run/determined/workdir`` as a link to the attempt's working directory, for code that names it as in Determined's containers.

It can be made in most containers, and on nodes where the user may write to ``/run``. There is one on a node, so that of runs that
name it at the same time one has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os

from dethpc.domain import workdir
from dethpc.domain.trial_config import WORKDIR
from dethpc.exec.supervision.tee import Log
from dethpc.rundir.spec import Spec

_LOCK = os.path.join(os.path.dirname(WORKDIR), ".dethpc.lock")


class WorkdirLink:
    def __init__(self) -> None:
        self._lock = -1
        self.made = False

    def make(self, spec: Spec, directory: str, log: Log) -> None:
        """Where the run names it and it can be made."""
        if not _is_named(spec, directory):
            return
        why = self._link(directory)
        self.made = not why
        if why:
            log.note("WARNING", f"dethpc: {WORKDIR}, which the code names, is not this run's: {why}; {workdir.INSTEAD}")

    def remove(self) -> None:
        """Idempotent."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                os.unlink(WORKDIR)
            os.close(self._lock)
            self._lock = -1

    def _link(self, directory: str) -> str:
        """Why it cannot be made, or ""."""
        if os.path.lexists(WORKDIR) and not os.path.islink(WORKDIR):
            return "something else is there"
        lock = -1
        try:
            os.makedirs(os.path.dirname(WORKDIR), exist_ok=True)
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.islink(WORKDIR):
                os.unlink(WORKDIR)  # its run was killed
            os.symlink(directory, WORKDIR)
        except OSError as error:
            if lock >= 0:
                os.close(lock)
            busy = isinstance(error, BlockingIOError)
            return "it leads to another run on this node" if busy else f"{error.strerror} ({error.filename})"
        self._lock = lock
        return ""


def _is_named(spec: Spec, directory: str) -> bool:
    if WORKDIR in json.dumps([spec.entrypoint, dict(spec.environment), spec.hparams]):
        return True
    for folder, _, names in os.walk(directory):
        for path in (os.path.join(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if workdir.is_code(path, os.lstat(path).st_size) and not os.path.islink(path):
                    with open(path, "rb") as file:
                        if workdir.line_naming_it(file.read()):
                            return True
    return False
