"""How tests wait: for conditions. Only what never comes true meets the limit, so that a busy machine decides no test."""

from __future__ import annotations

import os
import time
from typing import Callable, TypeVar

T = TypeVar("T")

LONG_ENOUGH = float(os.environ.get("DETHPC_TEST_WAIT", "600"))
"""Seconds after which what a test waits for counts as never to come: many times what an idle machine takes for anything."""


def wait_until(condition: Callable[[], T], timeout: float = LONG_ENOUGH, pause: float = 0.05) -> T:
    """What ``condition`` returns as soon as that is true. Raises AssertionError after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout:g} s in vain"
        time.sleep(pause)
    return found


def cheapest(call: Callable[[], object], rounds: int = 200, calls: int = 10) -> float:
    """Seconds that one ``call`` takes when nobody else has the processor: the least of many averages over few calls."""
    least = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter() - began) / calls)
    return least
