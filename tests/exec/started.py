"""A module of ``dethpc.exec`` that serves a socket, started as a task's script starts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from dethpc.exec.service import SOCKET
from tests import processes
from tests.exec.fixtures import ROOT
from tests.waiting import LONG_ENOUGH, wait_until


class Started:
    """``folder``: its working directory. All its processes end with the block."""

    def __init__(self, folder: Path, module: str, *arguments: str, details: Any = None, **environ: str) -> None:
        self.socket = folder / "socket"
        info = folder / "info.json"
        info.write_text(json.dumps({"details": details or {}}))
        env = {**os.environ, "PYTHONPATH": str(ROOT), "DETHPC_INFO": str(info), SOCKET: str(self.socket), **environ}
        self._log = folder / "log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"dethpc.exec.{module}", *arguments],
                cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def processes(self) -> list[int]:
        return processes.carrying(f"{SOCKET}={self.socket}")

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait(self) -> int:
        return self._process.wait(LONG_ENOUGH)

    def end(self) -> int:
        """The exit code after TERM, when nothing of it lives any more."""
        self._process.send_signal(signal.SIGTERM)
        code = self.wait()
        wait_until(lambda: not self.processes())
        return code
