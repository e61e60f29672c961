"""Where in a log the lines of a time are: for every few megabytes of a file, the earliest and the latest time of its lines.

Times need not rise along a file. What is known of a file is kept in memory and grows with it, so that it is read once for this; an
index on disk would be one file more for each log.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from dethpc.master.files.prefilter import STAMP
from dethpc.rundir.files import status
from dethpc.rundir.lines import blocks

CHUNK = 4 << 20
"""Bytes that have an entry of their own."""

_PATIENCE = 64 << 20  # bytes without a line, after which nothing more is learnt
_FIRST = 200  # bytes by which a file is known again

_STAMPED = re.compile(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?=Z\t)", re.MULTILINE)


class Chunk(NamedTuple):
    """``earliest`` and ``latest`` are the first bytes of lines; both empty where none has a time."""

    begin: int
    end: int
    earliest: bytes
    latest: bytes


class LogTimes:
    """Of one file. Its last bytes are left out: a network file system may show them before all is there. A file that was put in
    its place, as its first line and its length tell, is read anew."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._first = b""
        self._lock = threading.Lock()

    def spans(self, path: Path, lowest: bytes, highest: bytes) -> Iterator[tuple[int, int | None] | None]:
        """The parts of the file that may hold lines from ``lowest`` to ``highest``, in order, as offsets of their begin and
        end; the last one has none. None stands for some work done."""
        self._check(path)
        for _ in self._learn(path):
            yield None
        chunks = list(self._chunks)
        for chunk in chunks:
            if chunk.earliest and chunk.latest >= lowest and chunk.earliest <= highest:
                yield chunk.begin, chunk.end
        yield (chunks[-1].end if chunks else 0), None

    def _check(self, path: Path) -> None:
        first = next((block[:_FIRST] for _, block in blocks(path, 0, most=_FIRST)), b"")
        with self._lock:
            if first != self._first or (self._chunks and status(path).st_size < self._chunks[-1].end):
                self._chunks.clear()
            self._first = first

    def _learn(self, path: Path) -> Iterator[None]:
        begin = self._chunks[-1].end if self._chunks else 0
        try:
            most = status(path).st_size - CHUNK
        except FileNotFoundError:
            return
        earliest = latest = b""
        at = begin
        for offset, block in blocks(path, begin) if begin + CHUNK < most else ():
            at = offset + len(block)
            if bounds := _bounds(block):
                earliest = min(earliest or bounds[0], bounds[0])
                latest = max(latest, bounds[1])
            yield None
            if not block:  # within what is no line, maybe without end
                if at - begin > CHUNK + _PATIENCE:
                    return
            elif at - begin >= CHUNK:
                with self._lock:
                    if begin == (self._chunks[-1].end if self._chunks else 0):  # else another reader was faster
                        self._chunks.append(Chunk(begin, at, earliest, latest))
                begin, earliest, latest = at, b"", b""
                if begin + CHUNK > most:
                    return


def _bounds(block: bytes) -> tuple[bytes, bytes] | None:
    """The earliest and the latest time of its lines, as they begin; None where none has one."""
    beginnings = [text[:STAMP] for text in block[:-1].split(b"\n")]
    bounds = min(beginnings), max(beginnings)
    if not all(_STAMPED.match(bound + b"Z\t") for bound in bounds):  # some line is damaged
        beginnings = _STAMPED.findall(block)
        bounds = min(beginnings, default=b""), max(beginnings, default=b"")
    return bounds if bounds[0] else None


class Growth:
    """When a file grew whose lines have no times: its modification time at each look that saw it longer. A line keeps the time
    that it had first, until the master starts again."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[float] = []
        self._lock = threading.Lock()

    def look(self, size: int, modified: float) -> None:
        with self._lock:
            if self._ends and size < self._ends[-1]:  # another file is in its place
                self._ends, self._times = [], []
            if not self._ends or size > self._ends[-1]:
                self._ends.append(size)
                self._times.append(max([modified, *self._times[-1:]]))

    def at(self, offset: int) -> float:
        """The time of the line that begins there. What has come since the last look is of that look's time."""
        with self._lock:
            self._ends[-1] = max(self._ends[-1], offset + 1)
            return self._times[bisect_right(self._ends, offset)]


@lru_cache(maxsize=1000)
def of_file(path: Path) -> LogTimes:
    return LogTimes()


@lru_cache(maxsize=10_000)
def growth_of(path: Path) -> Growth:
    return Growth()
