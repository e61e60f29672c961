"""How this process ends: at exit Python says no more that an exception, or an exit code, is why."""

from __future__ import annotations

import sys
import types
from typing import Any, NoReturn, Optional, Type


class Ending:
    """Watches from its making on. ``error`` is the exception that nobody caught, or the ``SystemExit`` of a failure.

    A program that catches its own ``sys.exit`` of a failure, and goes on, counts as failed.
    """

    def __init__(self) -> None:
        self.error: Optional[BaseException] = None
        self._exit, self._uncaught = sys.exit, sys.excepthook
        sys.exit, sys.excepthook = self._leave, self._fail

    def _leave(self, status: Any = None, /) -> NoReturn:
        self.error = SystemExit(status) if status else None
        self._exit(status)

    def _fail(self, kind: Type[BaseException], error: BaseException, traceback: Optional[types.TracebackType]) -> None:
        self.error = error
        self._uncaught(kind, error, traceback)
