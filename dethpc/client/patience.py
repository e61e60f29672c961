"""To bear with a master that restarts, moves, or whose place a stranger has taken for a while."""

from __future__ import annotations

import time
from typing import Callable, Optional, TypeVar

from dethpc.errors import MasterUnreachable, NotTheMaster

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds without the master."""


def patiently(ask: Callable[[], T], patience: float = PATIENCE, *, start: Optional[Callable[[], object]] = None) -> T:
    """What ``ask`` returns, asked again while the master is away. After ``patience`` seconds raises what it then raises.

    ``start`` brings up one's own master that stays away for so long; then it is asked for as long again, once. Who waits for an end
    needs that: trials go on without a master, and nobody would tell of it.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return ask()
        except (MasterUnreachable, NotTheMaster):
            if time.monotonic() <= deadline:
                time.sleep(0.5)
                continue
            if start is None:
                raise
            start()
            start, deadline = None, time.monotonic() + patience
