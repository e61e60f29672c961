"""Limits on open files: a master raises its own, and starts processes with the limit of its user's shell.

Jobs inherit the limit with which ``sbatch`` was called, and some programs take long, or fail, where it is huge.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence

_ours: int | None = None  # the limit that this process was started with, once it has another


def raise_limit() -> None:
    """As far as the hard limit allows. For this process alone: what it starts by ``as_started`` gets what it had."""
    global _ours
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _ours = soft


def as_started(command: Sequence[str]) -> list[str]:
    """``command``, so that it runs with the limit that this process was started with."""
    if _ours is None:
        return list(command)
    return ["/bin/sh", "-c", f'ulimit -S -n {_ours}; exec "$@"', "sh", *command]
