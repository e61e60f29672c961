"""One line of a node's log: ``<RFC 3339 UTC, milliseconds>\\t<LEVEL>\\t<rank or ->\\t<stdtype>\\t<text>\\n``."""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from typing import NamedTuple, Optional, Union

from dethpc.rundir import lines

Path = Union[str, "os.PathLike[str]"]

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d):([0-5]\d|6[01])\.(\d{3})Z\t([A-Z]+)\t(\d+|-)\t(stdout|stderr)\t(.*)",
    re.DOTALL | re.ASCII,
)


class LogLine(NamedTuple):
    """``at`` in epoch seconds; ``rank`` of the worker, None when unknown; ``stdtype`` "stdout" or "stderr"; ``text``
    without its newline, control characters as the process wrote them."""

    at: float
    level: str
    rank: Optional[int]
    stdtype: str
    text: str


def format(line: LogLine) -> str:
    """The line as it is in the file, newline included. A newline inside the text becomes a space."""
    milliseconds = round(line.at * 1000)
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    rank = "-" if line.rank is None else str(line.rank)
    text = line.text.replace("\n", " ")
    return f"{second}.{milliseconds % 1000:03d}Z\t{line.level}\t{rank}\t{line.stdtype}\t{text}\n"


def parse(line: str) -> LogLine:
    """Raises: ValueError when ``line`` is no log line."""
    match = _LINE.fullmatch(line[:-1] if line.endswith("\n") else line)
    if match is None:
        raise ValueError(f"not a log line: {line[:80]!r}")
    minute, second, milliseconds, level, rank, stdtype, text = match.groups()
    try:
        at = _epoch(minute) + int(second) + int(milliseconds) / 1000
    except ValueError:
        raise ValueError(f"not a log line: {line[:80]!r}") from None
    return LogLine(at, level, None if rank == "-" else int(rank), stdtype, text)


@lru_cache(maxsize=4096)
def _epoch(minute: str) -> int:
    """Raises ValueError for a minute that never was. Thousands of lines share one."""
    import calendar  # readers need it, and jobs do not wait for it

    return calendar.timegm(time.strptime(minute, "%Y-%m-%dT%H:%M"))


def read_lines(path: Path, offset: int = 0, limit: Optional[int] = None) -> tuple[list[LogLine], int]:
    """Whole lines from byte ``offset`` on, and the offset to go on from; about ``limit`` bytes at most when given.

    The last line counts only with its newline. A line that is damaged (two writes torn apart by a crash) is skipped.
    No file is no line. Raises: OSError.
    """
    parsed: list[LogLine] = []
    begin = offset
    for at, raw in lines.forward(path, offset):
        offset = at + len(raw)
        line = _parse_bytes(raw)
        if line is not None:
            parsed.append(line)
        if limit is not None and offset - begin >= limit:
            break
    return parsed, offset


def _parse_bytes(raw: bytes) -> Optional[LogLine]:
    try:
        return parse(raw.decode("utf-8", "replace"))
    except ValueError:
        return None
