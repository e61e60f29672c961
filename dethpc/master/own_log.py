"""The master's own log: the format of its entries, a limit on those that unauthenticated clients can cause, and reading it by line
number."""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import suppress
from datetime import timezone
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from dethpc.domain.text import times
from dethpc.domain.text.escapes import escaped, in_one_line
from dethpc.rundir.lines import blocks, forward


class Entry(NamedTuple):
    """One line of the master's log; ``id`` counts the lines of the file from 1."""

    id: int
    timestamp: str
    level: str
    message: str


_ENTRY = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]?\s+"
    r"\[?(TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?:?\s+(.*)"
)


def entry(id: int, line: str) -> Entry:
    match = _ENTRY.fullmatch(line)
    if match is None:  # a line of a traceback, or of another program
        return Entry(id, "", "UNSPECIFIED", line)
    moment, level, message = match.groups()
    return Entry(id, _utc(moment), level, message)


def _utc(moment: str) -> str:
    """RFC 3339; a time without a zone is this machine's."""
    try:
        read = times.moment(moment.replace(",", "."))
    except ValueError:
        return ""
    return read.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read(path: Path, offset: int = 0, limit: int = 0) -> tuple[list[Entry], int, int]:
    """Entries after the first ``offset`` (the last ``-offset`` when negative), at most ``limit`` unless it is 0; and, to go on
    from: how many lines the file has, and its bytes."""
    starts = [(0, 0)]  # of blocks: the number of lines before them, and where they begin
    count = end = 0
    for begin, block in blocks(path):
        if block:
            starts.append((count, begin))
        count += block.count(b"\n") or 1
        end = begin + len(block)
    first = max(count + offset, 0) if offset < 0 else min(offset, count)
    last = min(first + limit, count) if limit > 0 else count
    before, begin = max(start for start in starts if start[0] <= first)
    chosen = islice(forward(path, begin), first - before, last - before)
    return [entry(number, _text(raw)) for number, (_, raw) in enumerate(chosen, first + 1)], count, end


def read_after(path: Path, count: int, end: int) -> tuple[list[Entry], int, int]:
    """What was appended since; from the start again when the file was replaced by a shorter one."""
    entries: list[Entry] = []
    with suppress(FileNotFoundError):
        if os.stat(path).st_size < end:
            count = end = 0
        for begin, raw in forward(path, end):
            count += 1
            entries.append(entry(count, _text(raw)))
            end = begin + len(raw)
    return entries, count, end


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").rstrip("\r\n")


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
