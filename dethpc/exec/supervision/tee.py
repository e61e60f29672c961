"""Writes the output of user code to this node's log, line by line.

A carriage return ends a line like a newline does, so that a progress bar is seen while it moves. A disk that is full
never stops the training: lines are then left out, writing is tried again, and the log says how many are missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from typing import Callable, Iterable, Optional, Sequence, Union

from dethpc.domain.text.quotations import Quotations, quotes
from dethpc.rundir import logline
from dethpc.rundir.logline import LogLine

MAX_LINE = 64 << 10
RETRY_SECONDS = 5.0
KEPT_LINES = 20
KEPT_EXCEPTIONS = 64
MAX_COMPLAINT = 300

_LINE_END = re.compile(rb"\r\n|\n|\r")
_RANK = re.compile(r"\[rank=(\d+)\] ?")  # written by launchers' wrap_rank
_TORCH_RANK = re.compile(r"\[rank(\d+)\]:? ?")  # written by torch before each line of a traceback
_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_LEVEL = re.compile(
    r"""(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?[\s:|-]*)?   # a time may stand first
        [\[(<]?(?:\d{4}-\d\d-\d\d[T ][\d:.,]+\s+)?                              # or inside the bracket
        (TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?=[\s:\]|)>-])""",
    re.VERBOSE,
)
_GLOG = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ ")  # torch's own lines
_GLOG_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_PYTHON_WARNING = re.compile(r"\S+:\d+: \w*Warning: ")
_PROGRESS = re.compile(r"\d%\||\bit/s\b|\bs/it\b")
_END = re.compile(r"ERROR: \S+ failed with exit code \d+$")
"""What a launcher says of a worker's end, which is no reason for it."""
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?$", re.DOTALL)
_LAUNCHERS_OWN = ("torch.distributed.elastic.", "subprocess.CalledProcessError")


def write_to_standard_error(text: str) -> None:
    """For the job's own output, which may be on the full disk that ``text`` is about. Never raises."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "replace"))


class Log:
    """This node's log file. Also remembers what an end report wants: the last lines and the uncaught exceptions."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self._path = os.fspath(path)
        self._fd = -1
        self._offset = 0
        self._retry_at = 0.0
        self._missing = 0
        self.lost = 0
        self.failure = ""
        self.tail: deque[str] = deque(maxlen=KEPT_LINES)
        self._tails: dict[int, deque[str]] = {}
        self._complaints: dict[Optional[int], tuple[int, str]] = {}
        self._counts: dict[Optional[int], int] = {}  # lines by rank
        self.exceptions: deque[tuple[Optional[int], str]] = deque(maxlen=KEPT_EXCEPTIONS)
        self.judge: Callable[[Sequence[str]], None] = lambda lines: None
        """Hears what user code wrote, after it was written."""

    def note(self, level: str, text: str) -> None:
        """A line of our own about others, which explains no end."""
        self._append([LogLine(time.time(), level, None, "stderr", text)])

    def say(self, level: str, text: str) -> None:
        """A line of our own."""
        self.add([LogLine(time.time(), level, None, "stderr", line) for line in text.split("\n")])

    def add(self, lines: list[LogLine], messages: Optional[list[LogLine]] = None) -> None:
        """Append ``lines`` in one write. Never raises. ``messages``: those that may explain an end; by default all."""
        if not lines:
            return
        messages = lines if messages is None else messages
        self.tail.extend(line.text for line in messages)
        for line in messages:
            self._counts[line.rank] = self._counts.get(line.rank, 0) + 1
            if line.rank is not None:
                self._tails.setdefault(line.rank, deque(maxlen=KEPT_LINES)).append(line.text)
        self._append(lines)

    def complain(self, lines: Iterable[LogLine]) -> None:
        """Remember the last of ``lines``, which user code wrote to standard error, as what it complained of."""
        for line in lines:
            level = _LEVEL.match(line.text)
            noted = level is not None and level.group(1) not in ("ERROR", "CRITICAL", "FATAL")
            passed_over = noted or line.level == "WARNING" or _PROGRESS.search(line.text) or _END.match(line.text)
            if line.text.strip() and not passed_over:
                self._complaints[line.rank] = (self._counts.get(line.rank, 0), line.text.strip()[:MAX_COMPLAINT])

    def _append(self, lines: list[LogLine]) -> None:
        if self._missing and time.monotonic() < self._retry_at:
            self._lose(len(lines))
            return
        data = "".join(map(logline.format, lines))
        if self._missing:
            note = f"dethpc: {self._missing} lines are missing here: {self.failure}"
            data = logline.format(LogLine(time.time(), "WARNING", None, "stderr", note)) + data
        try:
            self._write(data.encode("utf-8", "replace"))
            self._missing = 0
        except OSError as error:
            if not self.failure:
                write_to_standard_error(f"dethpc: the log cannot be written for now: {error}\n")
            self.failure = error.strerror or str(error)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._lose(len(lines))

    def tail_of(self, rank: Optional[int]) -> list[str]:
        """The last lines of the worker of ``rank``, else of all."""
        return list(self._tails.get(-1 if rank is None else rank) or self.tail)

    def complaint(self, rank: Optional[int]) -> str:
        """The last line on standard error of the worker of ``rank``, else of what has none, or "" where much else came after it. A
        warning or a note of a logging library is no complaint."""
        count, text = self._complaints.get(rank, (0, ""))
        return text if self._counts.get(rank, 0) - count < KEPT_LINES else ""

    def flush(self) -> None:
        """Try once more to say what is missing."""
        if self._missing:
            self._retry_at = 0.0
            self.add([LogLine(time.time(), "WARNING", None, "stderr", "dethpc: end of the log")])

    def close(self) -> None:
        self.flush()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lose(self, count: int) -> None:
        self._missing += count
        self.lost += count

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            self._offset = os.lseek(self._fd, 0, os.SEEK_END)
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._offset + written)
        except OSError:
            if written:
                os.ftruncate(self._fd, self._offset)
            raise
        self._offset += written


class Stream:
    """One output of one process: bytes in, log lines out."""

    def __init__(self, log: Log, stdtype: str) -> None:
        self._log, self._stdtype = log, stdtype
        self._rest = b""
        self._after_return = False
        self._quotations = Quotations()
        self._tracebacks: dict[Optional[int], bool] = {}

    def feed(self, data: bytes) -> None:
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]  # the second half of a \r\n whose first half came alone
        self._after_return = data.endswith(b"\r")
        *whole, self._rest = _LINE_END.split(self._rest + data)
        while len(self._rest) > MAX_LINE:
            whole.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        now = time.time()
        lines = [self._line(raw, now) for raw in whole]
        messages = [line for line in lines if not self._quotations.repeats(line.text, line.rank)]
        self._log.add(lines, messages)
        if self._stdtype == "stderr":
            self._log.complain(messages)
        if judged := [line.text for line in messages if not quotes(line.text)]:
            self._log.judge(judged)

    def end(self) -> None:
        """The last line may lack its newline."""
        if self._rest:
            self.feed(b"\n")

    def _line(self, raw: bytes, at: float) -> LogLine:
        text = raw.decode("utf-8", "replace")
        match = _RANK.match(text)
        rank = int(match.group(1)) if match else None
        if match:
            text = text[match.end() :]
        return LogLine(at, self._level(text, rank), rank, self._stdtype, text)

    def _level(self, text: str, rank: Optional[int]) -> str:
        torch = _TORCH_RANK.match(text)
        if torch:
            text, rank = text[torch.end() :], int(torch.group(1)) if rank is None else rank
        if text.startswith(_TRACEBACK):
            self._tracebacks[rank] = True
            return "ERROR"
        if self._tracebacks.get(rank):
            if text.strip() and not text[0].isspace():
                self._tracebacks[rank] = False
                if _EXCEPTION.match(text):
                    self._log.exceptions.append((rank, text.rstrip()))
            return "ERROR"
        match = _LEVEL.match(text)
        if match:
            return _LEVELS.get(match.group(1), match.group(1))
        match = _GLOG.match(text)
        if match:
            return _GLOG_LEVELS[match.group(1)]
        return "WARNING" if _PYTHON_WARNING.match(text) else "INFO"


def cause(exceptions: Iterable[tuple[Optional[int], str]]) -> str:
    """The exception to blame, or "". Each worker's last one counts (earlier ones were caught); of several workers the
    first to fail, since the others often fail of its absence; a launcher's own complaint only when no worker said
    anything."""
    exceptions = list(exceptions)
    last: dict[Optional[int], tuple[int, str]] = {}
    for position, (rank, text) in enumerate(exceptions):
        if not text.startswith(_LAUNCHERS_OWN):
            last[rank] = (position, text)
    ranked = [entry for rank, entry in last.items() if rank is not None] or list(last.values())
    if ranked:
        return min(ranked)[1]
    return exceptions[-1][1] if exceptions else ""
