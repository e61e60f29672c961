"""What a script outside the cluster prints, also for the master's log of its trial."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from typing import Any, List, Optional, TextIO

from dethpc.client.session import Session
from dethpc.errors import DethpcError

logger = logging.getLogger("dethpc.core")

_EVERY = 1.0  # seconds between two calls
_WAITING = 10_000  # lines that wait at most; later ones are left out


class LogShipper:
    """Copies standard output and error of this process, line by line, while it is on."""

    def __init__(self, session: Session, task_id: str, rank: int) -> None:
        self._session, self._task_id, self._rank = session, task_id, rank
        self._lines: queue.Queue[Optional[str]] = queue.Queue(_WAITING)
        self._streams: List[_Copy] = []
        self._thread = threading.Thread(target=self._send, name="dethpc-logs", daemon=True)

    def start(self) -> None:
        self._streams = [_Copy(sys.stdout, self._take), _Copy(sys.stderr, self._take)]
        sys.stdout, sys.stderr = self._streams
        self._thread.start()

    def close(self) -> None:
        """Give the streams back and send what is left, for some seconds at most."""
        out, err = self._streams
        # Somebody may have wrapped them again meanwhile; then theirs stay.
        if sys.stdout is out:
            sys.stdout = out.original
        if sys.stderr is err:
            sys.stderr = err.original
        out.end()
        err.end()
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=1)
        self._thread.join(10)

    def _take(self, line: str) -> None:
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(line)

    def _send(self) -> None:
        last = False
        while not last:
            batch: List[str] = []
            with contextlib.suppress(queue.Empty):
                while len(batch) < 1000:
                    line = self._lines.get(timeout=_EVERY)
                    if line is None:
                        last = True
                        break
                    batch.append(line)
            if batch:
                body = [{"task_id": self._task_id, "rank": str(self._rank), "log": line} for line in batch]
                with contextlib.suppress(DethpcError, OSError):  # a log is not worth more
                    self._session.post("/task-logs", body)


class _Copy:
    """A text stream that also hands out whole lines."""

    def __init__(self, original: TextIO, take: Any) -> None:
        self.original, self._take = original, take
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._take(line)
        return self.original.write(text)

    def end(self) -> None:
        if self._rest:
            self._take(self._rest)
        self._rest = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)
