"""Handles SIGTERM, so that a TERM that asks for a checkpoint does not end the training that saves it.

Some schedulers send TERM to every process of a job that they preempt, others to their own child alone. The Core API keeps its own
process alive through it, and no other one: what it forks or executes has the signal's default disposition.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import threading
import time
from types import FrameType
from typing import Callable, Optional

PATIENCE = 10.0
"""Seconds after which a TERM ends the process as it would without the Core API, if nobody has asked the attempt to stop and the
training has not been told to: then it was meant for this process."""

ALONE = 3.0
"""Seconds after which the training is told of a TERM that came without a request to stop."""

_LOOK_EVERY = 0.1
_READERS_SECONDS = 0.1

_open: Optional[TermHandler] = None
_masks = threading.local()


class TermHandler:
    """Handles TERM while it is open. It leaves a handler of the user's own alone, installed before or after, and does nothing where
    it is opened outside the main thread, for which alone Python allows handlers.

    ``killed``: whether the run shall end at once. ``stop_requested``: whether the attempt has been asked to stop. ``tell`` reports
    a TERM to the training, in a thread: at once where the attempt has been asked to stop, and else if the process is not killed
    before, as after another worker's failure. ``answered``: whether the training has noticed it.
    """

    def __init__(
        self,
        killed: Callable[[], bool],
        stop_requested: Callable[[], bool],
        tell: Callable[[], None],
        answered: Callable[[], bool],
    ) -> None:
        self._killed, self._stop_requested, self._tell, self._answered = killed, stop_requested, tell, answered
        self.came = False
        self._write = -1

    def open(self) -> None:
        global _open
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        ):
            return
        read, self._write = os.pipe()  # a handler may take no lock, so it starts no thread
        threading.Thread(target=self._follow, args=(read,), name="dethpc-term", daemon=True).start()
        _open = self
        signal.signal(signal.SIGTERM, self._handle)

    def take_from(self, package: str) -> None:
        """Handle TERM again where a handler of ``package`` has taken this one's place: the training is told in another way."""
        owner = type(signal.getsignal(signal.SIGTERM)).__module__
        if (
            _open is self
            and owner.partition(".")[0] == package
            and threading.current_thread() is threading.main_thread()
        ):
            signal.signal(signal.SIGTERM, self._handle)

    def close(self) -> None:
        """The default again, unless somebody has put a handler of their own in its place."""
        global _open
        if self._write < 0:
            return
        if _open is self:
            _open = None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(self._write)  # ends the thread
        self._write = -1

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        if self._write < 0:  # closed by a thread that may not change it
            _end()
        if not self.came:  # Slurm sends it twice
            self.came = True
            os.write(self._write, b"\0")
            until = time.monotonic() + _READERS_SECONDS
            while time.monotonic() < until and not _keep_outputs():
                time.sleep(0.01)

    def _follow(self, read: int) -> None:
        came = os.read(read, 1)
        os.close(read)
        since, telling = time.monotonic(), True
        while came and self._write >= 0 and not self._answered():
            if self._killed():
                _end()
            stopping, waited = self._stop_requested(), time.monotonic() - since
            if telling and (stopping or waited >= ALONE):
                telling = False
                self._tell()
            if stopping:
                return
            if waited >= PATIENCE:
                _end()
            time.sleep(_LOOK_EVERY)


def _end() -> None:
    """End this process by TERM. Python would let only the main thread do that, which may be in a call that does not return."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # a Python built without libffi lacks it

        ctypes.CDLL(None).signal(int(signal.SIGTERM), 0)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    os._exit(128 + signal.SIGTERM)


def _keep_outputs() -> bool:
    """Where the signal ended the program that reads this one's output, as ``tee`` in a pipeline, write to the other output instead,
    so that a print cannot fail the training. True when one was changed."""
    lost = [fd for fd in (1, 2) if _has_no_reader(fd)]
    for fd in lost:
        if len(lost) == 1:
            os.dup2(3 - fd, fd)
        else:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), fd)
    return bool(lost)


def _has_no_reader(fd: int) -> bool:
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except OSError:
        return False


def _before_fork() -> None:
    """A TERM for the child waits until the child has the default disposition; else Python would drop it."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if _open is not None else None


def _after_fork_in_parent() -> None:
    if getattr(_masks, "before", None) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _after_fork_in_child() -> None:
    global _open
    if _open is not None and signal.getsignal(signal.SIGTERM) == _open._handle:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _open = None
    _after_fork_in_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
