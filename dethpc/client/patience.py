"""Retries while a master restarts or moves, or while another server answers at its address."""

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
