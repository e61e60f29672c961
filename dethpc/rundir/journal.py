"""The journal of an attempt: what happened, in order, readable by another host while it is being written.

One report is one line, ``<seq> <len> <crc> <json>\\n``: ``seq`` counts from 1 without gaps, ``len`` is the size of the
JSON in bytes, ``crc`` is the CRC-32 of the JSON begun at ``seq``, in eight hexadecimal digits. The JSON is ``{"at":
epoch seconds, "kind": ..., ...}``. While the attempt lives, a reader stops at the first line that is not all of this:
it is torn, or still being written. Once the attempt is over, such a line is damaged, and costs itself alone.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from typing import Any, NamedTuple, Optional, Union

from dethpc.domain.reports import Report, ReportKind
from dethpc.rundir.files import MOST_VALUES, descriptor, open_regular, too_many_values

Path = Union[str, "os.PathLike[str]"]

SYNC_SECONDS = 1.0

MOST_BYTES = 16 << 20
"""How large one report may be: the master reads a line at once."""

MOST_LINE = MOST_BYTES + 64
"""Bytes of a line, with what stands before the report and its newline."""

A_LOOK = 1 << 20
"""About how many bytes of one journal the master takes in before it turns to others."""

_ENCODER = json.JSONEncoder(separators=(",", ":"))
_DECODER = json.JSONDecoder()


def to_line(report: Report) -> str:
    """The journal line of ``report``, without its newline. Raises: TypeError, ValueError when not JSON."""
    if "at" in report.data or "kind" in report.data:
        raise ValueError("a report's own fields may not be named 'at' or 'kind'")
    text = _ENCODER.encode({"at": report.at, "kind": report.kind, **report.data})
    if len(text) > MOST_BYTES:
        raise ValueError(
            f"a report of {len(text)} bytes ({report.kind}) is too large: {MOST_BYTES} are allowed; "
            "put large things into a checkpoint"
        )
    if too_many_values(text):
        raise ValueError(f"a report ({report.kind}) holds too much: {MOST_VALUES} values are allowed")
    return f"{report.seq} {len(text)} {zlib.crc32(text.encode(), report.seq):08x} {text}"


def from_line(line: Union[str, bytes]) -> Report:
    """The report that ``line`` (with or without its newline) states. Raises: ValueError when damaged."""
    raw = line.encode() if isinstance(line, str) else line
    if raw.endswith(b"\n"):
        raw = raw[:-1]
    try:
        seq_text, length, crc, text = raw.split(b" ", 3)
        seq, length_of = int(seq_text), len(text)
        if seq < 1 or length_of != int(length) or b"%08x" % zlib.crc32(text, seq) != crc:
            raise ValueError
        if length_of > MOST_BYTES or too_many_values(text):
            raise ValueError
        data = _loads(text.decode("utf-8", "surrogatepass"))
        return Report(seq, float(data.pop("at")), str(data.pop("kind")), data)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise ValueError(f"damaged journal line: {raw[:80]!r}") from None


def _loads(text: str) -> Any:
    """As ``json.loads``, and sooner for what is a value from its first character to its last, as every report's line is."""
    try:
        data, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError:
        end = -1
    return data if end == len(text) else json.loads(text)


def number_of(line: Union[str, bytes]) -> int:
    """The number of a line's report."""
    return int(line.split(None, 1)[0])


class NotWritten(OSError):
    """The disk did not take a report. ``report`` (and its ``line``) is valid all the same: it has its number, may go to
    the master by HTTP, and is written with the next report that the disk takes. ``durable``: it had to be on disk."""

    def __init__(self, report: Report, line: str, durable: bool, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror, cause.filename)
        self.report, self.line, self.durable = report, line, durable


class JournalWriter:
    """Appends to one attempt's journal. One process at a time; any of its threads.

    Opening goes on after the last good line and cuts off what is torn behind it. Lines reach the disk (fsync) at once
    for a validation, a completed operation, a checkpoint, an ack, an early exit and at ``close``, and otherwise once a
    second: with the next report, or ``lazy``, by whoever calls ``flush``, so that appending waits for no disk.

    Raises: OSError when the file cannot be opened.
    """

    def __init__(self, path: Path, *, lazy: bool = False) -> None:
        self._lazy = lazy
        self._lock = threading.Lock()
        written = RemainsReader(path)
        while not written.whole:
            written.read(A_LOOK)
        self._seq = written.last
        self._fd = descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._offset = written.offset
        self._unwritten: list[str] = []
        self._synced_at = time.monotonic()
        self._dirty = False
        os.ftruncate(self._fd, self._offset)

    @property
    def seq(self) -> int:
        """Number of the last report, written or not."""
        return self._seq

    @property
    def offset(self) -> int:
        """Bytes of whole lines that the operating system has."""
        return self._offset

    def append(
        self, kind: ReportKind, data: dict[str, Any], *, durable: bool = False, at: Optional[float] = None
    ) -> Report:
        """Append a report, made now if not ``at``, and return it when the operating system has it (the disk, if ``durable``).

        Raises: NotWritten (an OSError that carries the report) on a full or failing disk; TypeError or ValueError when
        ``data`` is not JSON, and then no number is used up.
        """
        return self.append_line(kind, data, durable=durable, at=at)[0]

    def append_line(
        self, kind: ReportKind, data: dict[str, Any], *, durable: bool = False, at: Optional[float] = None
    ) -> tuple[Report, str, bool]:
        """As ``append``; the report, its line, which is made once, and whether it had to be on disk."""
        with self._lock:
            report = Report(self._seq + 1, time.time() if at is None else at, kind, data)
            line = to_line(report)  # refuse before the number is taken
            self._seq = report.seq
            self._unwritten.append(line)
            durable = durable or report.durable
            try:
                self._write_pending()
                if durable:
                    self._sync()
                elif not self._lazy and time.monotonic() - self._synced_at >= SYNC_SECONDS:
                    self._sync()
            except OSError as error:
                raise NotWritten(report, line, durable, error) from error
            return report, line, durable

    def flush(self) -> None:
        """Bring what was written to disk, while others may append. Raises: OSError; then the next report tries it, too."""
        with self._lock:
            if not self._dirty or self._fd < 0:
                return
            fd = os.dup(self._fd)
            self._dirty = False
        try:
            os.fsync(fd)
        except OSError:
            self._dirty, self._lazy = True, False
            raise
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Write what an earlier full disk refused, and bring everything to disk. Raises: OSError."""
        with self._lock:
            self._write_pending()
            if self._dirty:
                self._sync()

    def close(self) -> None:
        """Bring everything to disk and close. Closing twice is harmless. Raises: OSError; the file is closed all the
        same."""
        if self._fd < 0:
            return
        try:
            self.sync()
        finally:
            with (
                self._lock
            ):  # a number that is closed may be another file's at once: nobody may be about to write to it
                fd, self._fd = self._fd, -1
                if fd >= 0:
                    os.close(fd)

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _write_pending(self) -> None:
        while self._unwritten:
            line = self._unwritten[0].encode() + b"\n"
            written = 0
            try:
                while written < len(line):
                    written += os.pwrite(self._fd, line[written:], self._offset + written)
            except OSError:
                if written:
                    os.ftruncate(self._fd, self._offset)
                raise
            self._offset += written
            self._dirty = True
            del self._unwritten[0]

    def _sync(self) -> None:
        os.fsync(self._fd)
        self._dirty = False
        self._synced_at = time.monotonic()


def read(path: Path, offset: int = 0, after_seq: int = 0, most: Optional[int] = None) -> tuple[list[Report], int]:
    """Reports from byte ``offset`` on whose ``seq`` is above ``after_seq``, and the offset after the last good line;
    no further when ``most`` bytes have been read.

    Give back the offset to go on from there. The file is opened again each time, since a network file system shows
    another host's writes only then. No file is no report. Raises: OSError.
    """
    reports: list[Report] = []
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return reports, offset
    with file:
        file.seek(offset)
        expected = 1 if offset == 0 else None
        end = None if most is None else offset + most
        while (end is None or offset < end) and (line := file.readline(MOST_LINE)):
            if not line.endswith(b"\n"):
                break  # being written, torn, or too long for a report
            try:
                report = from_line(line)
            except ValueError:
                break
            if expected is not None and report.seq != expected:
                break
            expected = report.seq + 1
            offset += len(line)
            if report.seq > after_seq:
                reports.append(report)
    return reports, offset


class Remains(NamedTuple):
    """What is left of a journal that nobody writes any more."""

    reports: list[Report]
    offset: int  # behind the last good line
    missing: int  # how many reports are damaged or gone


def read_remains(path: Path, offset: int = 0, after_seq: int = 0) -> Remains:
    """As ``read``, for a journal whose attempt is over: a damaged line costs itself, and the good ones after it count.

    Raises: OSError.
    """
    reader = RemainsReader(path, offset, after_seq)
    reports: list[Report] = []
    while not reader.whole:
        reports += reader.read(A_LOOK)
    return Remains(reports, reader.offset, reader.missing)


class RemainsReader:
    """Takes in by pieces what is left of a journal that nobody writes any more, from byte ``offset`` and ``after_seq`` on.

    Where it stands is remembered here alone. ``last`` is the number of the last report, ``offset`` is behind the last good
    line, and ``missing`` says how many reports are damaged or gone, as far as it was read; ``whole``: that was to its end.
    ``damaged`` gets the numbers of damaged lines, counted from ``offset``.
    """

    def __init__(self, path: Path, offset: int = 0, after_seq: int = 0, damaged: Optional[list[int]] = None) -> None:
        self._path = path
        self._numbers = damaged
        self._lines = 0
        self.offset, self.last, self.whole = offset, after_seq, False
        self._at = offset
        self._broken_off = b""  # the end of a line that is longer than a look
        self._missing = self._damaged = 0

    @property
    def missing(self) -> int:
        return self._missing + self._damaged

    def read(self, most: int) -> list[Report]:
        """The reports of the next ``most`` bytes or so. At the end of the file it may be asked again. Raises: OSError."""
        reports: list[Report] = []
        begin = self._at
        try:
            file = open_regular(self._path)
        except FileNotFoundError:
            self.whole = True
            return reports
        with file:
            file.seek(begin)
            while self._at - begin < most:
                limit = A_LOOK if self._broken_off else MOST_LINE
                piece = file.readline(limit)
                self.whole = len(piece) < limit and not piece.endswith(b"\n")
                if self.whole:  # the end; or torn, and its report never was
                    break
                self._at += len(piece)
                line = self._broken_off + piece
                self._broken_off = b"" if line.endswith(b"\n") else _remainder(line)
                if not self._broken_off and (report := self._report(line)) is not None:
                    reports.append(report)
        return reports

    def _report(self, line: bytes) -> Optional[Report]:
        self._lines += 1
        try:
            report = from_line(line)
        except ValueError:
            self._damaged += not _is_duplicate(line, self.last)
            if self._numbers is not None:
                self._numbers.append(self._lines)
            if not (gap := _hole(line)):
                return None
            report = from_line(line[gap:])
        self.offset, self._damaged = self._at, 0
        if report.seq <= self.last:
            return None
        self._missing += report.seq - self.last - 1
        self.last = report.seq
        return report


def _remainder(line: bytes) -> bytes:
    """What still matters of a line that is too long for a report and goes on: one may begin behind its last zero byte."""
    zero = line.rfind(b"\0")
    return line[zero:] if zero >= 0 and len(line) - zero <= MOST_LINE else b"?"


def _hole(damaged: bytes) -> int:
    """How many bytes of a damaged line come before a report that is whole; 0: none is.

    A file that lost its end while its writer went on, or that a crash left with blocks of zeros, has these in place of
    lines, and of the newline before the next one.
    """
    end = damaged.rfind(b"\0") + 1
    try:
        from_line(damaged[end:])
    except ValueError:
        return 0
    return end


def _is_duplicate(damaged: bytes, last: int) -> bool:
    """Whether the report of a damaged line had come another way, by what is left of its number."""
    number = damaged.split(b" ", 1)[0]
    return number.isdigit() and len(number) < 20 and int(number) <= last
