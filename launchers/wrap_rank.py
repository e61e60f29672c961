"""``python3 -m determined.launch.wrap_rank RANK COMMAND...``: put ``[rank=N] `` before each line that the worker prints.

The log takes the rank from there. RANK is a number, or names of environment variables, separated by commas, of which the
first that is set holds it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from typing import BinaryIO, Optional, Sequence

if not __package__:  # run by its path: what is beside this file must not hide other modules
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from dethpc.launch import _monitor, _signals

MAX_LINE = 64 << 10
KEPT_LINES = 40
# What a worker says when another one has left it: of several failures, that of such a worker is not the cause.
_LOST = re.compile(
    rb"HorovodInternalError|DistBackendError|Connection (?:closed|reset) by peer|Broken pipe|ConnectionResetError|"
    rb"^ConnectionError|remote process exited"
)
_LINE_END = re.compile(rb"\r\n|\n|\r")  # a progress bar writes \r alone


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command."""
    parser = argparse.ArgumentParser(prog="wrap_rank", description=__doc__)
    parser.add_argument("--no-redirect-stdio", action="store_true", help="accepted for compatibility; has no effect")
    parser.add_argument("rank", metavar="RANK", help="a number, or names of environment variables")
    parser.add_argument("command", metavar="COMMAND...", nargs=argparse.REMAINDER, help="the worker's command")
    parsed = parser.parse_args(arguments)
    command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
    rank = find_rank(parsed.rank)
    if rank is None or not command:
        sys.stderr.write(f"wrap_rank: no rank in {parsed.rank}\n" if rank is None else "wrap_rank: no command\n")
        return 2
    last_lines: deque[bytes] = deque(maxlen=KEPT_LINES)
    code = _run(rank, command, last_lines)
    _monitor.report_exit(rank, code, code != 0 and (code == 128 + signal.SIGTERM or any(map(_LOST.search, last_lines))))
    return code


def find_rank(text: str) -> Optional[int]:
    """The rank that ``text`` states or names; None when there is none."""
    if text.isdigit():
        return int(text)
    values = (os.environ.get(name, "") for name in text.split(","))
    return next((int(value) for value in values if value.isdigit()), None)


def _run(rank: int, command: Sequence[str], last_lines: deque[bytes]) -> int:
    """``last_lines`` receives the last lines of the command's stderr."""
    _signals.protect()
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        sys.stderr.write(f"[rank={rank}] {command[0]}: {'not found' if missing else error.strerror}\n")
        return 127 if missing else 126
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, _: child.send_signal(number))
    _signals.protect(child.terminate)
    _monitor.report_start(rank)
    assert child.stdout is not None and child.stderr is not None
    prefix = f"[rank={rank}] ".encode()
    copies = [
        threading.Thread(target=_copy, args=(source, target, prefix, last), daemon=True)
        for source, target, last in ((child.stdout, 1, None), (child.stderr, 2, last_lines))
    ]
    for copy in copies:
        copy.start()
    code = child.wait()
    for copy in copies:
        copy.join(timeout=5)  # something in the background may hold the pipe for ever
    return code if code >= 0 else 128 - code


def _copy(source: BinaryIO, target: int, prefix: bytes, last_lines: Optional[deque[bytes]]) -> None:
    rest, fd, after_return = b"", source.fileno(), False
    while True:
        data = os.read(fd, 1 << 16)
        if not data:
            break
        if after_return and data.startswith(b"\n"):
            data = data[1:]
        after_return = data.endswith(b"\r")
        *lines, rest = _LINE_END.split(rest + data)
        while len(rest) > MAX_LINE:
            lines.append(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        if last_lines is not None:
            last_lines.extend(lines)
        _write(target, b"".join(prefix + line + b"\n" for line in lines))
    if rest:
        _write(target, prefix + rest + b"\n")


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
