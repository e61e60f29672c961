"""Prefilter of log lines by their bytes, so that few are parsed: it may let a line pass that is not wanted, never the reverse.

RE2 looks through a block at the speed of grep, and lets other threads run meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from dethpc.config.patterns import Pattern, Seeker
from dethpc.rundir.lines import split

if TYPE_CHECKING:
    import re2

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
STAMP = len("2025-11-13T02:13:22.123")
"""Bytes of a time, at the beginning of a line."""


class Prefilter:
    """Lets pass each line that holds one mark of every group, and whose time, its first bytes, lies between ``after`` and
    ``before``, seconds since the epoch, and that ``pattern`` finds; and some others: what passes is still to be parsed and judged.
    The first group should be the rarest. Marks are not empty."""

    def __init__(
        self,
        groups: Sequence[Sequence[bytes]],
        after: float | None = None,
        before: float | None = None,
        pattern: Pattern | None = None,
    ) -> None:
        self._groups = groups
        self._pattern = None if pattern is None else pattern.among_lines()
        self.lowest = None if after is None else stamp(after, -2001)  # a leap second is later than it looks
        self.highest = None if before is None else stamp(before, 1)

    def lines(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Those that pass, each with where it begins in ``block``, which consists of whole lines."""
        lowest, highest = self.lowest or b"", self.highest or b"\xff"
        timed = self.lowest is not None or self.highest is not None
        if self._pattern is not None and _is_text(block):
            lines, others = _matching_lines(block, self._pattern), self._groups
        elif self._groups:
            lines, others = self._marked(block), self._groups[1:]
        else:
            lines, others = iter(()) if timed and _is_outside(block, lowest, highest) else _every(block), ()
        for at, raw in lines:
            of_time = not timed or lowest <= raw[:STAMP] <= highest
            if of_time and all(any(mark in raw for mark in group) for group in others):
                yield at, raw

    @cached_property
    def _any(self) -> re2._Regexp:
        import re2  # with its C++, when a log is first read

        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1  # a byte is a character
        options.log_errors = False
        return re2.compile(b"|".join(map(re2.escape, self._groups[0])), options)

    def _marked(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        first = self._any.search(block)
        if first is None:
            return
        marks = self._groups[0]
        ahead = [block.find(mark, first.start()) for mark in marks]  # where each is next
        while positions := [at for at in ahead if at >= 0]:
            at = min(positions)
            begin = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at) + 1
            yield begin, block[begin:end]
            ahead = [block.find(mark, end) if 0 <= at < end else at for mark, at in zip(marks, ahead)]


def _matching_lines(block: bytes, seek: Seeker) -> Iterator[tuple[int, bytes]]:
    end = 0
    while end < len(block) and (at := seek(block, end)) is not None and at < len(block):
        begin = block.rfind(b"\n", 0, at) + 1
        end = block.find(b"\n", at) + 1
        yield begin, block[begin:end]


def _is_outside(block: bytes, lowest: bytes, highest: bytes) -> bool:
    """Whether none of its lines begins between the two: a look at the beginnings alone takes a third of what the lines do."""
    beginnings = [line[:STAMP] for line in block[:-1].split(b"\n")]
    return max(beginnings) < lowest or min(beginnings) > highest


def _is_text(block: bytes) -> bool:
    """Else it is read with U+FFFD in it, which patterns can find."""
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _every(block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    for raw in split(block):
        yield at, raw
        at += len(raw)


def stamp(at: float, milliseconds: int) -> bytes | None:
    """``at``, and so many milliseconds later, as a line begins that was written then; None outside of the years that a line can
    name. Stamps are in the order of their times."""
    try:
        moment = _EPOCH + timedelta(milliseconds=int(at * 1000) + milliseconds)
    except (OverflowError, ValueError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").rjust(20, "0").encode() + b"%03d" % (moment.microsecond // 1000)
