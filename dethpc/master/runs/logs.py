"""Logs are files: reading and following those of a trial and of the master itself, by offset.

Each node of each attempt has a file of its own, and so has what the master says while the attempt has not started. The files of one
attempt are merged by time; attempts follow each other.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dethpc.config.patterns import Pattern
from dethpc.domain.ids import AttemptId
from dethpc.errors import RunDirError
from dethpc.rundir import logline
from dethpc.rundir.files import read_json
from dethpc.rundir.layout import AttemptDir, RunDir
from dethpc.rundir.lines import backward, forward

NO_RANK = -1
"""Stands for "without a rank" among the ranks that a filter names, as with Determined."""

_READ = 1 << 20  # bytes of one file that a follower takes in at a time
_AT_ONCE = 500  # lines of a piece of an answer
_PATIENCE = 64 << 20  # bytes of a file that are no line, after which it is not read on
_MASTER = 0x7FF  # stands for a node's rank in ids of the master's own lines
_BATCH = 0x7FE  # and of what the batch script and Slurm itself wrote


class Line(NamedTuple):
    """One line of one node's log. ``id`` is the same at each reading: a 63-bit number made of run, attempt, node and
    offset. ``alone``: there is one worker at most, so that a line without a rank is of rank 0."""

    at: float
    level: str
    rank: int | None
    stdtype: str
    text: str
    id: int
    attempt: AttemptId
    node: str
    alone: bool
    source: str = "task"  # "slurm": what the batch script, the pool's prologue and Slurm itself wrote


@dataclass(frozen=True)
class Filter:
    """Which lines are wanted; an empty set or None is no condition. Times are seconds since the epoch. ``ranks`` may hold
    ``NO_RANK``."""

    levels: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()
    stdtypes: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    attempts: frozenset[str] = frozenset()
    text: str | Pattern | None = None
    after: float | None = None
    before: float | None = None

    def __call__(self, line: Line) -> bool:
        return (
            (not self.levels or line.level in self.levels)
            and (not self.ranks or self._of_ranks(line))
            and (not self.nodes or line.node in self.nodes)
            and (not self.stdtypes or line.stdtype in self.stdtypes)
            and (not self.sources or line.source in self.sources)
            and (not self.attempts or str(line.attempt) in self.attempts)
            and (self.after is None or line.at > self.after)
            and (self.before is None or line.at < self.before)
            and self._has_text(line.text)
        )

    def _of_ranks(self, line: Line) -> bool:
        if line.rank is not None:
            return line.rank in self.ranks
        return NO_RANK in self.ranks or (line.alone and 0 in self.ranks)

    def _has_text(self, text: str) -> bool:
        if not self.text:
            return True
        if isinstance(self.text, str):
            return self.text in text
        return self.text.found_in(text)


@dataclass(frozen=True)
class Source:
    """The log of one node of one attempt. ``n`` is the run's number within its trial."""

    path: Path
    attempt: AttemptId
    n: int
    rank: int
    node: str
    alone: bool

    def line(self, offset: int, read: logline.LogLine) -> Line:
        id = (
            (self.n & 0xFFF) << 51
            | (self.attempt.number & 0xFF) << 43
            | (self.rank & 0x7FF) << 32
            | offset & 0xFFFFFFFF
        )
        return Line(*read, id, self.attempt, self.node, self.alone)

    def parse(self, offset: int, raw: bytes) -> Line:
        """Raises ValueError for what is no log line."""
        return self.line(offset, logline.parse(raw.decode("utf-8", "replace")))

    def lines(self, offset: int = 0) -> Iterator[Line]:
        return self._parsed(forward(self.path, offset), offset)

    def lines_backward(self) -> Iterator[Line]:
        return self._parsed(backward(self.path))

    def _parsed(self, lines: Iterator[tuple[int, bytes]], since: int | None = None) -> Iterator[Line]:
        """``since``: where the last line was. What is no text for long is not read on: it may be without end."""
        last = 0.0
        for offset, raw in lines:
            if raw or since is None:
                since = offset
            elif abs(offset - since) > _PATIENCE:
                words = f"{_PATIENCE >> 20} MiB here are no lines of text; what is beyond them is not shown"
                yield self.line(
                    offset, logline.LogLine(last or os.stat(self.path).st_mtime, "WARNING", None, "stderr", words)
                )
                return
            with suppress(ValueError):
                line = self.parse(offset, raw)
                last = line.at
                yield line


@dataclass(frozen=True)
class BatchOutput(Source):
    """What the batch script wrote, line by line, none of which has a time: all have that of the last one."""

    at: float = 0.0

    def parse(self, offset: int, raw: bytes) -> Line:
        text = raw.decode("utf-8", "replace").rstrip("\n")
        line = self.line(offset, logline.LogLine(self.at, "INFO", None, "stderr", text))
        return line._replace(source="slurm")


def sources(runs: Path, run_ids: Iterable[str]) -> list[list[Source]]:
    """The logs of a trial's runs, given in order: one list for each attempt."""
    found = []
    for n, run_id in enumerate(run_ids, 1):
        run_dir = RunDir(runs / run_id)
        for k in run_dir.attempts_with_logs():
            attempt, id = run_dir.attempt(k), AttemptId(run_id, k)
            said = run_dir.waiting(k)
            of_master = [Source(said, id, n, _MASTER, "master", False)] if said.exists() else []
            ranks = attempt.nodes_with_logs()
            names = _node_names(attempt) if ranks else []
            lone = _one_worker(run_dir.spec) if ranks else False
            of_nodes = [
                Source(attempt.log(rank), id, n, rank, names[rank] if rank < len(names) else f"node-{rank}", lone)
                for rank in ranks
            ]
            if of_master or of_nodes:
                found.append([*of_master, *of_nodes])
        if (written := _batch_output(run_dir, run_id, n)) is not None:
            if not found or found[-1][0].n != n:
                found.append([])
            found[-1].append(written)
    return found


def _batch_output(run_dir: RunDir, run_id: str, n: int) -> BatchOutput | None:
    """None: it wrote nothing, as is usual."""
    try:
        about = os.stat(run_dir.log)
    except OSError:
        return None
    if not about.st_size:
        return None
    last = max(run_dir.attempts(), default=0)
    return BatchOutput(run_dir.log, AttemptId(run_id, last), n, _BATCH, "slurm", False, about.st_mtime)


@lru_cache(maxsize=10_000)
def _one_worker(spec: Path) -> bool:
    """A run's specification never changes."""
    try:
        return int((read_json(spec) or {}).get("slots", 2)) <= 1
    except (OSError, RunDirError):
        return False


def _node_names(attempt: AttemptDir) -> Sequence[str]:
    try:
        started = read_json(attempt.started) or {}
    except (OSError, RunDirError):
        return []
    return [str(name) for name in started.get("nodes") or []]


def read(
    attempts: Sequence[Sequence[Source]], wanted: Filter, limit: int = 0, *, newest_first: bool = False
) -> Iterator[Line]:
    """Lines in order of time, at most ``limit`` of them unless it is 0. ``newest_first`` reads the files from their ends, so
    the tail of a long log costs what the tail costs."""
    lines = filter(wanted, _newest_first(attempts) if newest_first else _oldest_first(attempts))
    return islice(lines, limit) if limit > 0 else lines


def looks(
    attempts: Sequence[Sequence[Source]], wanted: Filter, limit: int = 0, *, newest_first: bool = False
) -> Iterator[list[Line]]:
    """As ``read``, by pieces that each take about as long, whether what is read is wanted or not: between two, a reader that has
    left is noticed."""
    found = 0
    for lines in _pieces(_newest_first(attempts) if newest_first else _oldest_first(attempts)):
        chosen = [line for line in lines if wanted(line)]
        if 0 < limit <= found + len(chosen):
            yield chosen[: limit - found]
            return
        found += len(chosen)
        yield chosen


def _pieces(lines: Iterator[Line]) -> Iterator[list[Line]]:
    piece: list[Line] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line.text)
        if len(piece) == _AT_ONCE or size > _READ:
            yield piece
            piece, size = [], 0
    yield piece


def _oldest_first(attempts: Sequence[Sequence[Source]]) -> Iterator[Line]:
    for attempt in attempts:
        yield from heapq.merge(*(source.lines() for source in attempt), key=_time)


def _newest_first(attempts: Sequence[Sequence[Source]]) -> Iterator[Line]:
    for attempt in reversed(attempts):
        yield from heapq.merge(*(source.lines_backward() for source in attempt), key=_time, reverse=True)


def _time(line: Line) -> float:
    return line.at


class Follower:
    """Reads on where it stopped. ``look`` lists the sources again, so that later attempts and nodes are found."""

    def __init__(self, look: Callable[[], Sequence[Sequence[Source]]], wanted: Filter) -> None:
        self._look, self._wanted = look, wanted
        self._offsets: dict[Path, int] = {}
        self.behind = False  # the last ``more`` left something unread

    def history(self) -> Iterator[list[Line]]:
        """What is there already, in order. To be read to its end before ``more`` is called."""
        for attempt in self._look():
            merged = heapq.merge(*(self._go_on(source, None) for source in attempt), key=_time)
            for lines in _pieces(merged):
                yield [line for line in lines if self._wanted(line)]

    def more(self) -> list[Line]:
        """What was written since, in order of time within an attempt; not all of it at once where it is much."""
        self.behind = False
        lines: list[Line] = []
        for attempt in self._look():
            fresh = [line for source in attempt for line in self._go_on(source, _READ)]
            lines += sorted(filter(self._wanted, fresh), key=_time)
        return lines

    def _go_on(self, source: Source, limit: int | None) -> Iterator[Line]:
        begin = self._offsets.get(source.path, 0)
        with suppress(FileNotFoundError):
            if os.stat(source.path).st_size <= begin:
                return
        since = begin
        for offset, raw in forward(source.path, begin):
            end = self._offsets[source.path] = offset + len(raw)
            since = end if raw else since
            with suppress(ValueError):
                yield source.parse(offset, raw)
            if end - (since if limit is None else begin) >= (limit or _READ):
                self.behind = True
                return


# --- the master's own log


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


def master_log(path: Path, offset: int = 0, limit: int = 0) -> tuple[list[Entry], int, int]:
    """Entries after the first ``offset`` (the last ``-offset`` when negative), at most ``limit`` unless it is 0; and, to go on
    from: how many lines the file has, and its bytes."""
    lines: list[str] = []
    end = 0
    with suppress(FileNotFoundError):
        for begin, raw in forward(path):
            lines.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
            end = begin + len(raw)
    first = max(len(lines) + offset, 0) if offset < 0 else offset
    chosen = lines[first : first + limit if limit > 0 else None]
    return [entry(first + number, line) for number, line in enumerate(chosen, 1)], len(lines), end


def master_log_after(path: Path, count: int, end: int) -> tuple[list[Entry], int, int]:
    """What was appended since; from the start again when the file was replaced by a shorter one."""
    entries: list[Entry] = []
    with suppress(FileNotFoundError):
        if os.stat(path).st_size < end:
            count = end = 0
        for begin, raw in forward(path, end):
            count += 1
            entries.append(entry(count, raw.decode("utf-8", "replace").rstrip("\r\n")))
            end = begin + len(raw)
    return entries, count, end
