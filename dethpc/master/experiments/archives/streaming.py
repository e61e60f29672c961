"""Streams an archive to a client while it is being written."""

from __future__ import annotations

import io
from typing import Any


class Sent(io.RawIOBase):
    """A file that cannot go back: what was written to it waits here for who sends it."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting.append(bytes(data))
        self.size += len(self._waiting[-1])
        return len(self._waiting[-1])

    def take(self) -> bytes:
        waiting, self._waiting, self.size = b"".join(self._waiting), [], 0
        return waiting
