"""Settings of the Python interpreter in a master's process, during its start and afterwards.

They affect the whole process: call these functions only in a process that runs nothing but the master.
"""

from __future__ import annotations

import contextlib
import gc
import sys

COLLECTIONS = 50_000, 10, 10
"""When Python looks for garbage that counting references does not find (``gc.set_threshold``). A transaction of reports makes a
hundred thousand objects that go by themselves; to look at them again and again, as Python would, takes a quarter of the time."""

TURN = 0.001
"""Seconds after which a thread that computes lets another one have its turn. A request waits for the event loop's turn several
times, each time this long, while some other thread has a large answer to make."""


def starting() -> None:
    """Before anything is imported: to look through that again and again takes a tenth of the start."""
    gc.set_threshold(*COLLECTIONS)


def at_work() -> None:
    """What is there by now stays: it is never looked through again. What the start alone needed goes back to the system."""
    gc.freeze()
    with contextlib.suppress(ImportError, OSError, AttributeError):  # a Python built without libffi, or no glibc
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    sys.setswitchinterval(TURN)
