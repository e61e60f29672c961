"""Turns the scheduler's signals to this process into ``stop.json``.

TERM says that the slots will be taken (preemption, or a cancel), USR1 that the time limit is near, INT that somebody
pressed the key; a second INT means at once.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any, Mapping, Optional

from dethpc.domain.attempts.stopping import StopReason, StopRequest
from dethpc.exec.supervision import tee
from dethpc.rundir.files import create_once
from dethpc.rundir.layout import AttemptDir

_REASONS = {
    signal.SIGTERM: StopReason.PREEMPTED,
    signal.SIGUSR1: StopReason.TIME_LIMIT,
    signal.SIGINT: StopReason.INTERRUPTED,
}


class Signals:
    """Context manager: receives the signals while it is open. ``fileno()`` becomes readable at each, even when a
    child ends."""

    def __init__(self, attempt: AttemptDir, grace: Optional[float], environ: Mapping[str, str]) -> None:
        self._attempt, self._grace, self._environ = attempt, grace, environ
        self._before: dict[int, Any] = {}
        self._interrupts = 0
        self.came = False  # a signal that asks the attempt to stop, or its time is up
        self.term_at: Optional[float] = None  # when the last TERM came, in epoch seconds

    @property
    def at_once(self) -> bool:
        return self._interrupts > 1

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _REASONS:
            self._before[number] = signal.signal(number, self._stop)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def drain(self) -> None:
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass

    def time_is_up(self) -> None:
        """As if USR1 had come."""
        self._ask(signal.SIGUSR1)

    def _stop(self, number: int, frame: Optional[FrameType]) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
        if number == signal.SIGTERM:
            self.term_at = time.time()
        self._ask(number)

    def _ask(self, number: int) -> None:
        self.came = True
        if self._attempt.run.closed.exists():
            return  # the master has said already what it wants; a kill leaves no time for a checkpoint
        now = time.time()
        request = StopRequest(_REASONS[signal.Signals(number)], now, self._deadline(number, now))
        try:
            create_once(self._attempt.stop, request.to_json())  # the first request gave the reason
        except OSError as error:
            tee.write_to_standard_error(f"dethpc: the request to stop could not be written: {error}\n")

    def _deadline(self, number: int, now: float) -> Optional[float]:
        """After this the scheduler kills; None: unknown."""
        if number == signal.SIGUSR1:
            return job_end(self._environ)
        return now + self._grace if number == signal.SIGTERM and self._grace else None


def job_end(environ: Mapping[str, str]) -> Optional[float]:
    """When the job's time limit ends it, in epoch seconds, if the scheduler says."""
    try:
        return float(environ.get("DETHPC_DEADLINE") or environ["SLURM_JOB_END_TIME"])
    except (KeyError, ValueError):
        return None
