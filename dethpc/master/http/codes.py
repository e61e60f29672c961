"""One-time codes: whoever has the owner's token gives a browser one, in a link, in the place of the token."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time

from dethpc.errors import Unauthorized

LIFESPAN = 300.0
"""Seconds in which a code may be used."""

MOST = 100
"""That are good at a time; the oldest go first."""


class OneTimeCodes:
    """Only their digests are kept. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def make(self) -> str:
        code, now = secrets.token_urlsafe(24), time.monotonic()
        with self._lock:
            self._until = {kept: until for kept, until in self._until.items() if until > now}
            while len(self._until) >= MOST:
                self._until.pop(next(iter(self._until)))
            self._until[_digest(code)] = now + LIFESPAN
        return code

    def redeem(self, code: str) -> None:
        """Raises Unauthorized when it is wrong, was used, or is too old."""
        with self._lock:
            until = self._until.pop(_digest(code), 0.0)
        if until <= time.monotonic():
            raise Unauthorized(
                f"this link was used or is older than {LIFESPAN / 60:.0f} minutes; det ui prints another one", 401
            )


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
