"""One's own master, which a sweep starts: a command of its own, so that it outlives the script."""

from __future__ import annotations

import subprocess
import sys

from dethpc import errors
from dethpc.client import Session, address


def start() -> None:
    """``det master up``. Raises MasterUnreachable with what it says."""
    up = [sys.executable, "-m", "dethpc.cli", "master", "up"]
    done = subprocess.run(up, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise errors.MasterUnreachable(done.stderr.strip().removeprefix("det: error: "))


def start_again(session: Session) -> None:
    """Start the master of ``session`` where it is one's own and was killed; one that was stopped (``det master down``) stays so.
    Raises MasterUnreachable."""
    if address.was_killed(session.url):
        start()
