"""The format of the master's log: each entry starts a line, and text that the master quotes cannot start one."""

from __future__ import annotations

import logging
from typing import Any

from dethpc.domain.escapes import escaped, in_one_line

_FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFormat(logging.Formatter):
    """Messages may quote what users and strangers sent: their newlines and control characters are spelled out. Tracebacks are
    indented."""

    def __init__(self) -> None:
        super().__init__(_FORM)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = in_one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in escaped(text).splitlines())
