"""To bear with a master that restarts, moves, or whose place a stranger has taken for a while."""

from __future__ import annotations

import time
from typing import Callable, TypeVar

from dethpc.errors import MasterUnreachable, NotTheMaster

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds without the master."""


def patiently(ask: Callable[[], T], patience: float = PATIENCE) -> T:
    """What ``ask`` returns, asked again while the master is away. After ``patience`` seconds raises what it then raises."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return ask()
        except (MasterUnreachable, NotTheMaster):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
