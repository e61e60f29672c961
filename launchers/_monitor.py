"""Run the workers of one node until all have ended; the first that fails takes the others with it.

Workers may be children of this process or, under torchrun or mpirun, further down: ``wrap_rank`` tells how each ended through
a FIFO named in the environment. So the code that counts is the failed worker's own, and nobody waits for the minutes that
some launchers grant to the other workers, which ignore TERM.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Mapping, Optional, Sequence

from dethpc.exec import processes

EXITS_VARIABLE = "DETHPC_WORKER_EXITS"
FAREWELL_SECONDS = 5.0  # for a launcher to end by itself after a worker failed
TERM_SECONDS = 2.0


def run(commands: Sequence[Sequence[str]], env: Optional[Mapping[str, str]] = None) -> int:
    """Start ``commands`` and wait. 0 when all exit 0; else the first failure's exit code, 128 + n after signal n. No process
    is left behind. INT, and TERM where it is not ignored, end everything. Raises: OSError when one cannot be started."""
    directory = tempfile.mkdtemp(prefix="dethpc-launch-")
    fifo = os.path.join(directory, "exits")
    os.mkfifo(fifo, 0o600)
    # Open for writing too, so that there is no end of file between two writers.
    exits = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        processes.adopt_orphans()
        return _Monitor(exits).run(commands, {**(os.environ if env is None else env), EXITS_VARIABLE: fifo})
    finally:
        os.close(exits)
        shutil.rmtree(directory, ignore_errors=True)


def report_exit(rank: int, code: int) -> None:
    """A worker of ``rank`` ended with ``code``: tell the launcher that started it, if one wants to know."""
    path = os.environ.get(EXITS_VARIABLE)
    if not path:
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # the launcher has gone, or runs on another node
    try:
        os.write(fd, f"{rank} {code}\n".encode())
    except OSError:
        pass
    finally:
        os.close(fd)


def exit_code(status: int) -> int:
    """A shell's exit code for a wait status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class _Monitor:
    def __init__(self, exits: int) -> None:
        self._exits = exits
        self._rest = b""
        self._failure = 0
        self._signalled = 0

    def run(self, commands: Sequence[Sequence[str]], env: Mapping[str, str]) -> int:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: setattr(self, "_signalled", number))
        try:
            running: dict[int, subprocess.Popen[bytes]] = {}
            try:
                for command in commands:
                    child = subprocess.Popen(list(command), env=dict(env))
                    running[child.pid] = child
                self._wait(running)
            finally:
                self._end_all()
            for child in running.values():
                child.returncode = child.returncode or 0  # collected by waitpid, not by the object
            return self._failure
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait(self, running: dict[int, subprocess.Popen[bytes]]) -> None:
        left = set(running)
        give_up_at: Optional[float] = None
        while left:
            select.select([self._exits], [], [], 0.1)
            self._hear()
            for pid, status in processes.reap().items():
                if pid in left:
                    left.discard(pid)
                    self._hear()  # a worker's own word comes before its launcher's
                    self._failure = self._failure or exit_code(status)
            if self._signalled:
                self._failure = self._failure or 128 + self._signalled
                return
            if self._failure and give_up_at is None:
                give_up_at = time.monotonic() + (FAREWELL_SECONDS if len(running) == 1 else 0.0)
            if give_up_at is not None and time.monotonic() >= give_up_at:
                return

    def _hear(self) -> None:
        try:
            self._rest += os.read(self._exits, 4096)
        except BlockingIOError:
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            rank, code = map(int, line.split())
            if code and not self._failure:
                self._failure = code
                sys.stderr.write(f"ERROR: the worker of rank {rank} failed with exit code {code}; ending the others\n")

    def _end_all(self) -> None:
        kill_at = time.monotonic() + TERM_SECONDS
        left = self._left()
        processes.send(left, signal.SIGTERM)
        while left:
            if time.monotonic() >= kill_at:
                processes.send(left, signal.SIGKILL)
            time.sleep(0.02)
            left = self._left()

    def _left(self) -> list[int]:
        processes.reap()
        return processes.descendants()
