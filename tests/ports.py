"""Ports for servers that take none of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dethpc.exec import ports


@contextlib.contextmanager
def free_port() -> Iterator[int]:
    """Nobody else gets it, neither before a server listens there nor after."""
    (held,) = ports.reserve(1)
    with held:
        yield ports.numbers([held])[0]
