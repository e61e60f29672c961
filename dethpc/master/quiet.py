"""Limits the rate of log lines that clients without a token can cause: rotation of a flooded log would remove the record of what
they did."""

from __future__ import annotations

import logging
import time

_PAUSE = 60.0  # seconds
_MOST = 1000  # messages that are remembered


class OncePerMinute(logging.Filter):
    """For a logger: of records with the same message it lets one through each minute, which counts those that it held back."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, tuple[float, int]] = {}  # when it was said last, and how many times it was not said since

    def filter(self, record: logging.LogRecord) -> bool:
        message, now = str(record.msg).partition("\n")[0][:200], time.monotonic()
        logged_at, suppressed = self._said.get(message, (now - _PAUSE, 0))
        if now - logged_at < _PAUSE:
            self._said[message] = logged_at, suppressed + 1
            return False
        if len(self._said) >= _MOST:
            self._said.clear()
        self._said[message] = now, 0
        if suppressed:
            record.msg, record.args = f"{record.getMessage()} ({suppressed} times more since this was said last)", ()
        return True
