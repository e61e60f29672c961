"""Logging by dethpc in a training that has set up none of its own."""

from __future__ import annotations

import logging
import sys


class _Fallback(logging.Handler):
    """Writes warnings to stderr, as Python does by itself then, but with their level: a trial's log knows a line's level by it."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


def name_levels() -> None:
    """To be called once training code runs on the cluster; a second call changes nothing."""
    ours = logging.getLogger("dethpc")
    if not any(isinstance(handler, _Fallback) for handler in ours.handlers):
        fallback = _Fallback(logging.WARNING)
        fallback.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        ours.addHandler(fallback)
