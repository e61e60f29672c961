"""TERM in launchers: one that asks for a checkpoint ends neither them nor the programs between them and the workers.

Some schedulers send it to every process of a job. The workers have its default disposition, as without a launcher; a training that
uses the Core API protects itself.
"""

from __future__ import annotations

import contextlib
import signal
import time
from types import FrameType
from typing import Callable, Iterator, Optional

from . import _task

PATIENCE = 10.0
"""Seconds within which the request to stop must be there for a TERM to count as part of it."""

_came: Optional[float] = None


def protect(end: Optional[Callable[[], object]] = None) -> None:
    """Handle TERM in this process from now on, and take it if its parent had blocked it (``blocked``). ``end`` is called where
    somebody wants the process itself to end; without it, ``told_to_end`` says so. Main thread only."""

    def note(number: int, frame: Optional[FrameType]) -> None:
        global _came
        _came = time.monotonic() if _came is None else _came
        if end is not None:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    def decide(number: int, frame: Optional[FrameType]) -> None:
        if end is not None and told_to_end():
            end()

    if end is not None:
        signal.signal(signal.SIGALRM, decide)
        if _came is not None:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    signal.signal(signal.SIGTERM, note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def told_to_end() -> bool:
    """Whether a TERM has come that does not ask for a checkpoint: somebody wants this process itself to end."""
    global _came
    if _came is None:
        return False
    if _task.asked_to_stop():
        _came = None
        return False
    return time.monotonic() >= _came + PATIENCE


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """What is started meanwhile has TERM blocked until it unblocks it: torchrun and mpirun, which would end their workers, and
    programs of ours until their handler is there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
