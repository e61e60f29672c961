"""A token bucket: sites dislike many submissions a minute."""

from __future__ import annotations

import time


class Throttle:
    """``take`` returns at once ``burst`` times, then ``rate`` times a second. Not thread-safe."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = float(burst), time.monotonic()

    def take(self) -> None:
        now = time.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate) - 1
        self._at = now
        if self._tokens < 0:
            time.sleep(-self._tokens / self.rate)
