"""Token bucket for submissions, because sites limit how many come in a minute."""

from __future__ import annotations

import threading
import time


class Throttle:
    """``take`` returns at once ``burst`` times, then ``rate`` times a second. May be used from several threads."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = float(burst), time.monotonic()
        self._lock = threading.Lock()

    def take_now(self) -> bool:
        """Take a token if there is one, without waiting."""
        with self._lock:
            now = time.monotonic()
            tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            if tokens < 1:
                return False
            self._tokens, self._at = tokens - 1, now
            return True

    def take(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate) - 1
            self._at = now
            wait = -self._tokens / self.rate
        if wait > 0:
            time.sleep(wait)
