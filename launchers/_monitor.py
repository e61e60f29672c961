"""Runs the workers of one node until all have ended; the first failure ends the others.

Workers may be children of this process or, under torchrun or mpirun, further down: ``wrap_rank`` tells how each ended through
a socket named in the environment. So the code that counts is the failed worker's own, and nobody waits for the minutes that
some launchers grant to the other workers, which may have a handler for TERM.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Mapping, NamedTuple, Optional, Sequence

from dethpc.exec.supervision import processes

from . import _signals, _task

EXITS_VARIABLE = "DETHPC_WORKER_EXITS"
CULPRIT_SECONDS = 3.0  # for the worker to fail whose absence another one complains of
FAREWELL_SECONDS = 5.0  # for a launcher to end by itself after a worker failed
TERM_SECONDS = 2.0
REPORT_SECONDS = 2.0  # the launcher may be busy with other workers' reports
USAGE = 2  # the exit code of programs that do not know an option


_UCRED = struct.Struct("3i")  # of who sent a report: process, user, group


class Worker(NamedTuple):
    """A process to start. ``env`` is its whole environment, None: this process's. ``shielded``: it starts with TERM blocked, as it
    is no user code, and the workers below it unblock it."""

    command: Sequence[str]
    env: Optional[Mapping[str, str]] = None
    shielded: bool = False


def ranked(rank: int, script: Sequence[str], env: Mapping[str, str]) -> Worker:
    """A worker whose rank is known: its output is tagged, its end reported."""
    return Worker([sys.executable, "-m", f"{__package__}.wrap_rank", str(rank), "--", *script], env, shielded=True)


def run(workers: Sequence[Worker]) -> int:
    """Start ``workers`` and wait. 0 when all exit 0; else the first failure's exit code, 128 + n after signal n. No process
    is left behind. INT ends everything, and so does a TERM that does not ask for a checkpoint. Raises: OSError when one
    cannot be started."""
    name = f"dethpc-launch-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as exits:
        exits.bind(f"\0{name}")  # in no file system, so that nothing is left of it when this process is killed
        exits.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        exits.setblocking(False)
        _task.forget_failure()
        processes.adopt_orphans()
        return _Monitor(exits, name).run(workers)


def report_start(rank: int) -> None:
    """A worker of ``rank`` has started: tell the launcher that started it, if one wants to know."""
    _report(f"{rank} start")


def report_exit(rank: int, code: int, secondary: bool = False) -> None:
    """As ``report_start``: the worker has ended with ``code``; ``secondary`` when it says that it lost another one."""
    _report(f"{rank} {code}" + (" secondary" if secondary else ""))


def _report(line: str) -> None:
    name = os.environ.get(EXITS_VARIABLE)
    if not name:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as report:
        report.settimeout(REPORT_SECONDS)
        try:
            report.sendto(line.encode(), f"\0{name}")
        except OSError:
            pass  # the launcher has gone, or runs on another node


def exit_code(status: int) -> int:
    """A shell's exit code for a wait status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def describe(code: int) -> str:
    """An exit code in words."""
    try:
        return f"was killed by signal {code - 128} ({signal.Signals(code - 128).name})"
    except ValueError:
        return f"failed with exit code {code}"


class _Failure(NamedTuple):
    rank: int
    code: int
    secondary: bool
    at: float
    give_up_at: float


class _Monitor:
    def __init__(self, exits: socket.socket, name: str) -> None:
        self._exits, self._name = exits, name
        self._begun = False
        self._failure = 0
        self._suspect: Optional[_Failure] = None
        self._signalled = 0

    def run(self, workers: Sequence[Worker]) -> int:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        if before[signal.SIGINT] is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda number, _: setattr(self, "_signalled", number))
        _signals.protect()
        try:
            running: dict[int, tuple[subprocess.Popen[bytes], Worker]] = {}
            try:
                for worker in workers:
                    env = {**(os.environ if worker.env is None else worker.env), EXITS_VARIABLE: self._name}
                    with _signals.blocked() if worker.shielded else contextlib.nullcontext():
                        child = subprocess.Popen(list(worker.command), env=env)
                    running[child.pid] = child, worker
                self._wait({pid: worker for pid, (_, worker) in running.items()})
            finally:
                self._end_all()
            for child, _ in running.values():
                child.returncode = child.returncode or 0  # collected by waitpid, not by the object
            return self._failure
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait(self, running: Mapping[int, Worker]) -> None:
        workers = dict(running)
        give_up_at: Optional[float] = None
        while workers or self._suspect:
            select.select([self._exits], [], [], 0.1)
            self._hear()
            if self._suspect and time.monotonic() >= self._suspect.give_up_at:
                self._fail(self._suspect)
            for pid, status in processes.reap().items():
                worker = workers.pop(pid, None)
                if worker is not None:
                    self._hear()  # a worker's own word comes before its launcher's
                    self._ended(worker, exit_code(status))
            if _signals.told_to_end():
                self._signalled = signal.SIGTERM
            if self._signalled:
                self._failure = self._failure or 128 + self._signalled
                return
            if self._failure and give_up_at is None:
                give_up_at = time.monotonic() + (FAREWELL_SECONDS if len(running) == 1 else 0.0)
            if give_up_at is not None and time.monotonic() >= give_up_at:
                return

    def _hear(self) -> None:
        while True:
            try:
                line, credentials, _, _ = self._exits.recvmsg(256, socket.CMSG_SPACE(_UCRED.size))
            except BlockingIOError:
                return
            if not any(_UCRED.unpack(data)[1] == os.getuid() for _, _, data in credentials):
                continue  # some other user's
            rank, word, *secondary = line.decode().split()
            self._begun = True
            if word in ("start", "0") or self._failure:
                continue
            failure = _Failure(int(rank), int(word), bool(secondary), time.time(), time.monotonic() + CULPRIT_SECONDS)
            if not failure.secondary:
                self._fail(failure)
            elif self._suspect is None:
                self._suspect = failure

    def _fail(self, failure: _Failure) -> None:
        self._failure, self._suspect = failure.code, None
        _task.note_failure("train", failure.at, rank=failure.rank, code=failure.code, secondary=failure.secondary)
        sys.stderr.write(f"ERROR: the worker of rank {failure.rank} {describe(failure.code)}; ending the others\n")

    def _ended(self, worker: Worker, code: int) -> None:
        """A child of this process has ended, and no worker of its has failed before."""
        if not code or self._failure or self._suspect:
            return
        self._failure = code
        if code == USAGE and not self._begun:
            _task.note_failure("launch", time.time(), code=code)
        sys.stderr.write(f"ERROR: {shlex.quote(worker.command[0])} {describe(code)}\n")

    def _end_all(self) -> None:
        kill_at = time.monotonic() + TERM_SECONDS
        remaining = self._descendants()
        processes.send(remaining, signal.SIGTERM)
        while remaining:
            if time.monotonic() >= kill_at:
                processes.send(remaining, signal.SIGKILL)
            time.sleep(0.02)
            remaining = self._descendants()

    def _descendants(self) -> list[int]:
        processes.reap()
        return processes.descendants()
