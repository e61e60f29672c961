"""Logs are files: reading those of a trial, by offset.

Each node of each attempt has a file of its own, and so has what the master says while the attempt has not started. The files of one
attempt are merged by time; attempts follow each other.
"""

from __future__ import annotations

import heapq
import math
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dethpc.config.patterns import Pattern
from dethpc.domain.ids import AttemptId
from dethpc.errors import RunDirError
from dethpc.master.files.prefilter import Prefilter
from dethpc.rundir import logline
from dethpc.rundir.files import exists, read_json, status
from dethpc.rundir.layout import AttemptDir, RunDir
from dethpc.rundir.lines import MOST, blocks, blocks_backward, split

NO_RANK = -1
"""Stands for "without a rank" among the ranks that a filter names, as with Determined."""

READ = 1 << 20
"""Bytes of one file that a follower takes in at a time, and of a piece of an answer."""

_AT_ALL = 8 << 20  # bytes of all files that are held at a time
_AT_ONCE = 500  # lines of a piece of an answer
_IDLE = 4  # blocks in which nothing was found, and that are a piece of an answer, too
_PATIENCE = 64 << 20  # bytes of a file that are no line, after which it is not read on
_START_SECONDS = (
    5.0  # for the master to report a start; without a master, or a disk that it can write, the log is shown after that
)
_MASTER = 0x7FF  # stands for a node's rank in ids of the master's own lines
_BATCH = 0x7FE  # and of what the batch script and Slurm itself wrote

# Some have the node behind their name: "slurmstepd-n1: error: ...".
_COMPLAINT = re.compile(r"(?:slurm\w+|s(?:run|batch|alloc|bcast|cancel|control))(?:-[\w.-]+)?: (error|fatal|warning):")
_LEVELS = {"error": "ERROR", "fatal": "CRITICAL", "warning": "WARNING"}


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

    def of(self, source: Source) -> bool:
        """Whether any line of ``source`` may be wanted."""
        return (
            (not self.nodes or source.node in self.nodes)
            and (not self.sources or source.said_by in self.sources)
            and (not self.attempts or str(source.attempt) in self.attempts)
        )

    @cached_property
    def prefilter(self) -> Prefilter:
        """For files of log lines."""
        ranks = [f"{rank}\tstd" for rank in self.ranks if rank != NO_RANK]
        if self.ranks & {NO_RANK, 0}:
            ranks.append("-\tstd")
        marks = ([f"Z\t{level}\t" for level in self.levels], ranks, [f"\t{stdtype}\t" for stdtype in self.stdtypes])
        groups = [[word.encode("utf-8", "replace") for word in group] for group in marks if group]
        return Prefilter([*self._text_marks, *groups], self.after, self.before, self._pattern)

    @cached_property
    def text_prefilter(self) -> Prefilter:
        """For files of text that is no log."""
        return Prefilter(self._text_marks, pattern=self._pattern)

    @property
    def _pattern(self) -> Pattern | None:
        return self.text if isinstance(self.text, Pattern) else None

    @property
    def _text_marks(self) -> list[list[bytes]]:
        """What bytes a line holds that holds the text. U+FFFD also stands for bytes that are no text."""
        if not isinstance(self.text, str) or not self.text or "\ufffd" in self.text:
            return []
        try:
            return [[self.text.encode()]]
        except UnicodeEncodeError:
            return []

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
    said_by = "task"

    @property
    def key(self) -> tuple[AttemptId, int]:
        """What tells a log from others; its file may be folded meanwhile, and has another path then."""
        return self.attempt, self.rank

    def line(self, offset: int, read: logline.LogLine) -> Line:
        attempt, rank = self.key
        id = (self.n & 0xFFF) << 51 | (attempt.number & 0xFF) << 43 | (rank & 0x7FF) << 32 | offset & 0xFFFFFFFF
        return Line(*read, id, self.attempt, self.node, self.alone)

    def parse(self, offset: int, raw: bytes) -> Line:
        """Raises ValueError for what is no log line."""
        return self.line(offset, logline.parse(raw.decode("utf-8", "replace")))

    def lines(self, filter: Filter, most: int = MOST) -> Iterator[Line | None]:
        """The wanted ones; None now and then, for work that found nothing. ``most``: bytes to read at a time."""
        return self._chosen(blocks(self.path, most=most), filter)

    def lines_backward(self, filter: Filter, most: int = MOST) -> Iterator[Line | None]:
        return self._chosen(blocks_backward(self.path, most), filter, backward=True)

    def judged(self, lines: Iterable[tuple[int, bytes]], filter: Filter, begin: int) -> Iterator[Line]:
        """The wanted ones of lines of a block that begins at ``begin``."""
        for at, raw in lines:
            with suppress(ValueError):
                line = self.parse(begin + at, raw)
                if filter(line):
                    yield line

    def prefilter(self, filter: Filter) -> Prefilter:
        return filter.prefilter

    def _chosen(
        self, blocks: Iterator[tuple[int, bytes]], line_filter: Filter, *, backward: bool = False
    ) -> Iterator[Line | None]:
        """What is no text for long is not read on: it may be without end."""
        since, before = -1, b""
        for begin, block in blocks:
            if block or since < 0:
                since, before = begin, block
            elif abs(begin - since) > _PATIENCE + len(before):
                yield from filter(line_filter, [self._given_up(begin, split(before)[:: 1 if backward else -1])])
                return
            lines = self.prefilter(line_filter).lines(block)
            yield from self.judged(reversed(list(lines)) if backward else lines, line_filter, begin)
            yield None

    def _given_up(self, offset: int, before: Iterable[bytes]) -> Line:
        """Says that the file is read no further. ``before``: what was read last, the last line first."""
        message = f"{_PATIENCE >> 20} MiB here are no lines of text; what is beyond them is not shown"
        last = next(self.judged(((0, raw) for raw in before), Filter(), 0), None)
        at = status(self.path).st_mtime if last is None else last.at
        return self.line(offset, logline.LogLine(at, "WARNING", None, "stderr", message))


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


@lru_cache(maxsize=10_000)
def growth_of(path: Path) -> Growth:
    return Growth()


@dataclass(frozen=True)
class BatchOutput(Source):
    """What the batch script wrote in all attempts of a run, line by line, none of which has a time. ``attempt``: the last one."""

    growth: Growth
    said_by = "slurm"

    @property
    def key(self) -> tuple[AttemptId, int]:
        return AttemptId(self.attempt.run, 0), self.rank

    def prefilter(self, filter: Filter) -> Prefilter:
        return filter.text_prefilter

    def parse(self, offset: int, raw: bytes) -> Line:
        text = raw.decode("utf-8", "replace").rstrip("\n")
        line = self.line(offset, logline.LogLine(self.growth.at(offset), _level(text), None, "stderr", text))
        return line._replace(source=self.said_by)


def sources(directory_of: Callable[[str], RunDir], run_ids: Iterable[str]) -> list[list[Source]]:
    """The logs of a trial's runs, given in order: one list for each attempt. ``directory_of``: where the files of a
    run are read."""
    logs = []
    for n, run_id in enumerate(run_ids, 1):
        run_dir = directory_of(run_id)
        for k in run_dir.attempts_with_logs():
            attempt, id = run_dir.attempt(k), AttemptId(run_id, k)
            waiting = run_dir.waiting(k)
            of_master = [Source(waiting, id, n, _MASTER, "master", False)] if exists(waiting) else []
            ranks = attempt.nodes_with_logs()
            names = _node_names(attempt) if ranks else []
            lone = _one_worker(run_dir.spec) if ranks else False
            of_nodes = [
                Source(attempt.log(rank), id, n, rank, names[rank] if rank < len(names) else f"node-{rank}", lone)
                for rank in ranks
            ]
            if of_master or of_nodes:
                logs.append([*of_master, *of_nodes])
        if (written := _batch_output(run_dir, run_id, n)) is not None:
            if not logs or logs[-1][0].n != n:
                logs.append([])
            logs[-1].append(written)
    return logs


def precedes_its_start(source: Source, directory_of: Callable[[str], RunDir], begun: int) -> bool:
    """Whether ``source`` is a node's of an attempt whose start the master has not reported, but will at once. ``begun``: the number
    of the run's last attempt whose start it has."""
    if source.rank == _MASTER or source.attempt.number <= begun:
        return False
    try:
        age = (
            time.time() - status(directory_of(str(source.attempt.run)).attempt(source.attempt.number).started).st_mtime
        )
    except OSError:
        return False
    return 0 <= age < _START_SECONDS


def _batch_output(run_dir: RunDir, run_id: str, n: int) -> BatchOutput | None:
    """None: it wrote nothing, as is usual."""
    try:
        about = status(run_dir.log)
    except OSError:
        return None
    if not about.st_size:
        return None
    last = max(run_dir.attempts(), default=0)
    growth = growth_of(run_dir.log)
    growth.look(about.st_size, about.st_mtime)
    return BatchOutput(run_dir.log, AttemptId(run_id, last), n, _BATCH, "slurm", False, growth)


@lru_cache(maxsize=10_000)
def _one_worker(spec: Path) -> bool:
    """A run's specification never changes."""
    try:
        return int((read_json(spec) or {}).get("slots", 2)) <= 1
    except (OSError, RunDirError):
        return False


def _node_names(attempt: AttemptDir) -> Sequence[str]:
    try:
        started = attempt.start_report()
    except (OSError, RunDirError):
        return []
    return [] if started is None else started.nodes


def read(
    attempts: Sequence[Sequence[Source]], filter: Filter, limit: int = 0, *, newest_first: bool = False
) -> Iterator[Line]:
    """Lines in order of time, at most ``limit`` of them unless it is 0. ``newest_first`` reads the files from their ends, so
    the tail of a long log costs what the tail costs."""
    lines = (line for line in _merged(attempts, filter, newest_first=newest_first) if line is not None)
    return islice(lines, limit) if limit > 0 else lines


def looks(
    attempts: Sequence[Sequence[Source]], filter: Filter, limit: int = 0, *, newest_first: bool = False
) -> Iterator[list[Line]]:
    """As ``read``, by pieces that each take about as long, whether what is read is wanted or not: between two, a reader that has
    left is noticed."""
    count = 0
    for lines in pieces(_merged(attempts, filter, newest_first=newest_first)):
        if 0 < limit <= count + len(lines):
            yield lines[: limit - count]
            return
        count += len(lines)
        yield lines


def _merged(attempts: Sequence[Sequence[Source]], filter: Filter, *, newest_first: bool) -> Iterator[Line | None]:
    for attempt in reversed(attempts) if newest_first else attempts:
        chosen = [source for source in attempt if filter.of(source)]
        most = bytes_each(chosen)
        if newest_first:
            yield from _newest_first([source.lines_backward(filter, most) for source in chosen])
        else:
            yield from oldest_first([source.lines(filter, most) for source in chosen])


def bytes_each(sources: Sequence[Source]) -> int:
    """To read of each at a time, where all are read at once."""
    return max(_AT_ALL // max(len(sources), 1), 1 << 16)


def oldest_first(sources: Iterable[Iterator[Line | None]]) -> Iterator[Line | None]:
    """None, for work that found nothing, comes at once."""
    return heapq.merge(*sources, key=lambda line: -math.inf if line is None else line.at)


def _newest_first(sources: Iterable[Iterator[Line | None]]) -> Iterator[Line | None]:
    return heapq.merge(*sources, key=lambda line: math.inf if line is None else line.at, reverse=True)


def pieces(lines: Iterator[Line | None]) -> Iterator[list[Line]]:
    piece: list[Line] = []
    size = idle = 0
    for line in lines:
        if line is None:
            idle += 1
        else:
            piece.append(line)
            size += len(line.text)
        if len(piece) == _AT_ONCE or size > READ or idle == _IDLE:
            yield piece
            piece, size, idle = [], 0, 0
    yield piece


def _level(text: str) -> str:
    """That of a line in which Slurm's own programs may complain of something."""
    complaint = _COMPLAINT.match(text)
    return _LEVELS[complaint[1]] if complaint else "INFO"
