"""What notebooks, TensorBoards and shells have in common: each serves one Unix socket, and ends when it is idle."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

from dethpc.domain.attempts.service_state import ServiceState
from dethpc.domain.text.measures import duration
from dethpc.rundir.files import write_json
from dethpc.rundir.layout import AttemptDir

SOCKET = "DETHPC_SERVICE_SOCKET"
"""The variable that names the path of the socket. The master's proxy leads there."""

MISSING = 127
"""The exit code where the program to start is not installed: that of shells."""

_LONGEST_PAUSE = 5.0
_REPORT_PAUSE = 20.0  # seconds between two reports of the idle time, at least


def in_use_file(environ: Mapping[str, str]) -> Path:
    """A file beside the socket, which is locked while a client uses the task without a connection to that. Raises KeyError."""
    return Path(environ[SOCKET]).with_name("in-use")


def details() -> Dict[str, Any]:
    """What the master has given to this task because of its kind. Raises OSError, and ValueError for what is damaged."""
    with open(os.environ["DETHPC_INFO"], encoding="utf-8") as file:
        return dict(json.load(file)["details"])


class Idle:
    """Ends a service that nobody has used for ``timeout`` seconds; None: never. ``in_use`` is called now and then.

    ``service.json`` of the attempt reports whether the service answers, and when it will end for want of use.
    """

    def __init__(self, name: str, timeout: Optional[float], in_use: Callable[[], bool]) -> None:
        self._name, self._timeout, self._in_use = name, timeout, in_use
        self._last_use = time.monotonic()
        self._reported, self._reported_at = ServiceState(), 0.0

    @property
    def pause(self) -> float:
        """Seconds until it should be asked again."""
        return _LONGEST_PAUSE if self._timeout is None else max(0.05, min(_LONGEST_PAUSE, self._timeout / 4))

    @property
    def ready(self) -> bool:
        """Whether the service has answered."""
        return self._reported.ready

    def begin(self) -> None:
        """The service answers: from now on it can be idle."""
        self._last_use = time.monotonic()
        self._report(ServiceState(ready=True))

    def expired(self) -> bool:
        """Whether the service should end now, which the log then says."""
        if self._timeout is None:
            return False
        in_use = self._in_use()
        if in_use:
            self._last_use = time.monotonic()
        unused_for = time.monotonic() - self._last_use
        if unused_for < self._timeout:
            if self.ready and time.monotonic() - self._reported_at >= min(_REPORT_PAUSE, self._timeout / 4):
                self._report(ServiceState(True, None if in_use else time.time() + self._timeout - unused_for))
            return False
        ended = f"idle for {duration(self._timeout)} (idle_timeout)"
        sys.stderr.write(f"dethpc: {self._name} ends: {ended}\n")
        self._report(ServiceState(self.ready, ended=ended))
        return True

    def _report(self, state: ServiceState) -> None:
        """Write what has changed by more than a second. A full disk costs the report, not the service."""
        before, after = self._reported.idle_ends_at, state.idle_ends_at
        steady = before == after or (before is not None and after is not None and abs(after - before) < 1.0)
        if steady and state._replace(idle_ends_at=before) == self._reported:
            return
        self._reported, self._reported_at = state, time.monotonic()
        with contextlib.suppress(OSError):
            attempt = AttemptDir(Path(os.environ["DETHPC_INFO"]).parent)
            write_json(attempt.service, state.to_json(), durable=False)


def missing(program: str, how: str) -> int:
    """Say that a program is not installed, and how to get it."""
    sys.stderr.write(f"dethpc: {program} is not installed for {sys.executable} on this node: {how}\n")
    return MISSING
