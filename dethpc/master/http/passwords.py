"""Limits the rate of failed logins per peer.

Checking a password is expensive on purpose. One peer has one check at a time and all peers together two; a login beyond that is
refused with the time after which to retry. After failures, a peer waits longer and longer before its next try of the same name.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from dethpc.errors import MasterError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

_AT_ONCE = 2
_FREE_FAILURES = 3  # mistakes in typing
_LONGEST_DELAY = 60.0  # seconds
_FORGOTTEN_AFTER = 900.0  # seconds without a failure
_REMEMBERED = 4096  # peers and names that failed


class TooManyLogins(MasterError):
    """Not now. ``retry_after`` is in seconds."""

    def __init__(self, why: str, retry_after: float) -> None:
        self.retry_after = max(1, ceil(retry_after))
        super().__init__(f"{why}: try again in {self.retry_after} s", 429)


class _Failures(NamedTuple):
    number: int
    at: float


class Delays:
    """How long a key has to wait after failures. Any thread may use it."""

    def __init__(self) -> None:
        self._failures: OrderedDict[int, _Failures] = OrderedDict()  # by hash: a name may be long
        self._lock = threading.Lock()

    def remaining_seconds(self, key: tuple[str, str]) -> float:
        """Seconds until ``key`` may try again; 0 or less: now."""
        with self._lock:
            failures = self._failures.get(hash(key))
        if failures is None or failures.number < _FREE_FAILURES:
            return 0.0
        delay = min(_LONGEST_DELAY, 2.0 ** (failures.number - _FREE_FAILURES))
        return failures.at + delay - time.monotonic()

    def failed(self, key: tuple[str, str]) -> None:
        now = time.monotonic()
        with self._lock:
            failures = self._failures.pop(hash(key), None)
            number = failures.number if failures is not None and now - failures.at < _FORGOTTEN_AFTER else 0
            self._failures[hash(key)] = _Failures(number + 1, now)
            if len(self._failures) > _REMEMBERED:
                self._failures.popitem(last=False)

    def succeeded(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._failures.pop(hash(key), None)


class Passwords:
    """Hashes and checks what clients send in the place of a password. Any thread may use it."""

    def __init__(self) -> None:
        self._delays = Delays()
        self._checking: set[str] = set()  # peers
        self._lock = threading.Lock()
        # Two threads keep the memory of two checks. Each of the many that answer requests would keep as much.
        self._threads = ThreadPoolExecutor(_AT_ONCE, "password")

    def hash(self, given: str) -> str:
        return self._threads.submit(lambda: _hasher().hash(given)).result()

    def check(self, given: str, password_hash: str, *, user_exists: bool, peer: str, name: str) -> bool:
        """Whether ``given`` is the password of ``password_hash`` ("": of none) and the user exists, in the same time if not.

        Raises TooManyLogins.
        """
        from argon2.exceptions import Argon2Error, InvalidHashError

        key = (peer, name)
        if (delay := self._delays.remaining_seconds(key)) > 0:
            raise TooManyLogins(f"too many wrong passwords for {name[:100]!r}", delay)
        right = False
        if password_hash:
            with self._turn(peer), contextlib.suppress(Argon2Error, InvalidHashError):
                right = self._threads.submit(lambda: _hasher().verify(password_hash, given)).result()
        if right and user_exists:
            self._delays.succeeded(key)
            return True
        self._delays.failed(key)
        return False

    def outdated(self, password_hash: str) -> bool:
        """Whether ``password_hash`` was made with other costs than today's."""
        return _hasher().check_needs_rehash(password_hash)

    @contextlib.contextmanager
    def _turn(self, peer: str) -> Iterator[None]:
        with self._lock:
            if peer in self._checking or len(self._checking) >= _AT_ONCE:
                raise TooManyLogins("too many logins at once", 1)
            self._checking.add(peer)
        try:
            yield
        finally:
            with self._lock:
                self._checking.discard(peer)


def _hasher() -> PasswordHasher:
    """With the costs that OWASP's Password Storage Cheat Sheet gives for the least memory: strangers make the master spend it."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=5, memory_cost=7 << 10, parallelism=1)
