"""Progress as lines of a log."""

from __future__ import annotations

from typing import Any, Dict, Optional


class Progress:
    """A line at the beginning, every tenth of the way, and at the end."""

    def __init__(self) -> None:
        self.verbose = False
        self._what = ""
        self._total: Optional[int] = None
        self._tenth = 0

    def begin(self, what: str, total: Optional[int]) -> None:
        """``total``: batches; None when nobody knows."""
        self._what, self._total, self._tenth = what, total, 0

    def done(self, batches: int, metrics: Optional[Dict[str, Any]]) -> None:
        if self.verbose and self._total:
            tenth = 10 * batches // self._total
            if tenth > self._tenth:
                self._tenth = tenth
                self._print(f"{10 * tenth}% ({batches}/{self._total} batches)", metrics)

    def end(self, metrics: Optional[Dict[str, Any]]) -> None:
        if self.verbose:
            self._print("done", metrics)

    def _print(self, how_far: str, metrics: Optional[Dict[str, Any]]) -> None:
        values = " ".join(f"{name}={float(value):.4g}" for name, value in (metrics or {}).items() if _is_number(value))
        print(f"{self._what}: {how_far} {values}".rstrip(), flush=True)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
