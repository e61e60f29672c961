"""Following a trial's logs: what was written since the last look."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dethpc.domain.ids import AttemptId
from dethpc.master.files.logs import READ, Filter, Line, Source, bytes_each, oldest_first, pieces
from dethpc.rundir.files import status
from dethpc.rundir.lines import blocks

Key = tuple[AttemptId, int]


@dataclass
class _Pending:
    """What was read of a file and is not due. ``partial``: more of it is to be read."""

    lines: list[Line] = field(default_factory=list)
    partial: bool = False

    @property
    def unread(self) -> bool:
        return self.partial or bool(self.lines)


class Follower:
    """Reads on where it stopped. ``look`` lists the sources again, so that later attempts and nodes are found."""

    def __init__(self, look: Callable[[], Sequence[Sequence[Source]]], filter: Filter) -> None:
        self._look, self._wanted = look, filter
        self._offsets: dict[Key, int] = {}
        self._pending: dict[Key, _Pending] = {}
        self._latest: list[Source] = []  # of the last attempt
        self.behind = False  # the last ``more`` left something unread

    def history(self) -> Iterator[list[Line]]:
        """What is there already, in order. To be read to its end before ``more`` is called."""
        for attempt in self._look():
            chosen = [source for source in attempt if self._wanted.of(source)]
            most = bytes_each(chosen)
            yield from pieces(oldest_first([self._go_on(source, None, most) for source in chosen]))

    def more(self) -> list[Line]:
        """What was written since, in order of time within an attempt; not all of it at once where it is much."""
        self.behind = False
        lines: list[Line] = []
        attempts = self._look()
        self._latest = [source for attempt in attempts[-1:] for source in attempt if self._wanted.of(source)]
        for attempt in attempts:
            lines += self._in_order([source for source in attempt if self._wanted.of(source)])
            if self.behind:
                break
        return lines

    def _in_order(self, sources: Sequence[Source]) -> list[Line]:
        """What is new in the files of one attempt, up to the time to which all of them have been read."""
        until = math.inf
        for source in sources:
            pending = self._pending.setdefault(source.key, _Pending())
            if not pending.lines:
                self.behind = False
                pending.lines = [line for line in self._go_on(source, READ, READ) if line is not None]
                pending.partial = self.behind
            if pending.partial and pending.lines:
                until = min(until, pending.lines[-1].at)
        lines: list[Line] = []
        for source in sources:
            pending = self._pending[source.key]
            lines += (line for line in pending.lines if line.at <= until)
            pending.lines = [line for line in pending.lines if line.at > until]
        self.behind = any(self._pending[source.key].unread for source in sources)
        return sorted(lines, key=lambda line: line.at)

    def grown(self) -> bool:
        """Whether a file of the last attempt that is known has more: a glance, where ``more`` lists all directories."""
        for source in self._latest:
            with suppress(FileNotFoundError):
                if status(source.path).st_size > self._offsets.get(source.key, 0):
                    return True
        return False

    def _go_on(self, source: Source, limit: int | None, most: int) -> Iterator[Line | None]:
        """``limit``: bytes to read; None: all that there is, but for what is no text for long."""
        begin = self._offsets.get(source.key, 0)
        with suppress(FileNotFoundError):
            if status(source.path).st_size <= begin:
                return
        since = begin
        prefilter = source.prefilter(self._wanted)
        for offset, block in blocks(source.path, begin, most=most):
            end = self._offsets[source.key] = offset + len(block)
            since = end if block else since
            yield from source.judged(prefilter.lines(block), self._wanted, offset)
            yield None
            if end - (since if limit is None else begin) >= (limit or READ):
                self.behind = True
                return
