"""Reads the master's own log by line number."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import NamedTuple

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
        read = datetime.fromisoformat(moment.replace(",", ".").replace("Z", "+00:00"))
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
