"""One-time codes: a client with the owner's token gives a browser a code, in a link, instead of the token."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any

from dethpc.errors import Unauthorized

log = logging.getLogger(__name__)

LIFESPAN = 300.0
"""Seconds in which a code may be used."""

MOST = 100
"""That are good at a time; the oldest go first."""


@dataclass(frozen=True, slots=True)
class _Code:
    until: float
    users: frozenset[str]
    content: Any


class OneTimeCodes:
    """Only their digests are kept. Any thread may call it."""

    def __init__(self, another: str) -> None:
        """``another``: how to get another code, as a clause for who comes with a used one."""
        self._another = another
        self._lock = threading.Lock()
        self._codes: dict[str, _Code] = {}

    def make(self, peer: str = "", content: Any = None) -> str:
        """``peer``: who asks, as ``master.http.peer`` names peers. ``content``: what ``redeem`` returns."""
        code, now = secrets.token_urlsafe(24), time.monotonic()
        # Root can do all that the owner can, and runs what forwards connections on some machines.
        users = frozenset(("user 0", f"user {os.geteuid()}", peer))
        with self._lock:
            self._codes = {key: entry for key, entry in self._codes.items() if entry.until > now}
            while len(self._codes) >= MOST:
                self._codes.pop(next(iter(self._codes)))
            self._codes[digest(code)] = _Code(now + LIFESPAN, users, content)
        return code

    def redeem(self, code: str, peer: str = "") -> Any:
        """What ``make`` was given. Raises Unauthorized when it is wrong, was used or is too old, and when ``peer`` is another user
        of this machine: the code stays good for the one who asked for it."""
        key = digest(code)
        with self._lock:
            entry = self._codes.get(key)
            if entry is not None and peer.startswith("user ") and peer not in entry.users:
                log.warning("a one-time code was shown by %s of this machine, and refused", peer)
                raise Unauthorized("this link belongs to another user of this machine", 401)
            self._codes.pop(key, None)
        if entry is None or entry.until <= time.monotonic():
            raise Unauthorized(f"this link was used or is older than {LIFESPAN / 60:.0f} minutes; {self._another}", 401)
        return entry.content


def digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
