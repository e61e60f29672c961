"""``python3 -m dethpc.exec.notebook``: JupyterLab on a Unix socket, in a folder that stays.

It listens on no port, and the channels of its kernels are Unix sockets, too: whoever may connect to a port on this node could read
what a cell prints. The sockets are in folders of this user's alone, and the master's proxy lets in whom it knows, so JupyterLab
itself asks for no token. (A kernel has one port for what processes that it forks print. It takes only what names a secret.)
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from dethpc.domain.text.times import seconds
from dethpc.exec.service import SOCKET, Idle, missing
from dethpc.rundir import scratch
from dethpc.rundir.tree import remove

_START_POLL = 0.5  # seconds
_ENDS_WITHIN = 20.0
"""Seconds that JupyterLab has to end its kernels, after which it is killed."""


class Jupyter:
    """What the server at ``path`` on a Unix socket says of itself."""

    def __init__(self, socket_path: str, path: str) -> None:
        self._socket_path, self._path = socket_path, path

    def answers(self) -> bool:
        """Whether it has started."""
        with contextlib.suppress(OSError):
            self.kernels()
            return True
        return False

    def kernels(self) -> List[Dict[str, Any]]:
        """Each with ``connections``, ``execution_state`` and ``last_activity``. Raises OSError."""
        return self._get("api/kernels")

    def terminals(self) -> List[Dict[str, Any]]:
        """Each with ``last_activity``. Raises OSError."""
        return self._get("api/terminals")

    def _get(self, name: str) -> List[Dict[str, Any]]:
        connection = HTTPConnection("localhost", timeout=30)
        try:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(30)
            connection.sock.connect(self._socket_path)
            connection.request("GET", f"{self._path}{name}")
            answer = connection.getresponse()
            body = answer.read()
            if answer.status == 404:  # a server without terminals
                return []
            if answer.status != 200:
                raise OSError(f"{name}: HTTP {answer.status}")
            return list(json.loads(body))
        except (HTTPException, ValueError) as error:
            raise OSError(f"{name}: {error}") from error
        finally:
            connection.close()


def kernels_or_terminals(jupyter: Jupyter) -> bool:
    """In use while there is a kernel or a terminal. Raises OSError, as each of these rules."""
    return bool(jupyter.kernels() or jupyter.terminals())


def kernel_connections(jupyter: Jupyter) -> bool:
    """In use while somebody is connected to a kernel or has a terminal."""
    return any(int(kernel.get("connections") or 0) for kernel in jupyter.kernels()) or bool(jupyter.terminals())


class Activity:
    """In use while a kernel computes, and whenever a kernel or a terminal has been active since the last look."""

    def __init__(self) -> None:
        self._seen = time.time()

    def __call__(self, jupyter: Jupyter) -> bool:
        kernels = jupyter.kernels()
        times = [_time(one.get("last_activity")) for one in (*kernels, *jupyter.terminals())]
        latest = max(times, default=self._seen)
        active, self._seen = latest > self._seen, max(latest, self._seen)
        return active or any(kernel.get("execution_state") == "busy" for kernel in kernels)


def _time(text: Any) -> float:
    try:
        return seconds(str(text))
    except ValueError:
        return 0.0


RULES: Dict[str, Callable[[], Callable[[Jupyter], bool]]] = {
    "kernels_or_terminals": lambda: kernels_or_terminals,
    "kernel_connections": lambda: kernel_connections,
    "activity": Activity,
}
"""What counts as use, by Determined's names."""


def bring(folder: Path) -> None:
    """Bring what is in the working directory to ``folder``, the first time; later it stays as its user has left it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        shutil.copytree(os.getcwd(), folder, symlinks=True, dirs_exist_ok=True)


def command(socket_path: str, path: str, arguments: Sequence[str]) -> List[str]:
    """Of JupyterLab. The last value of an option counts: none of the user's opens a port."""
    own = {
        "ServerApp.sock": socket_path,
        "ServerApp.sock_mode": "0600",
        "ServerApp.base_url": path,
        "ServerApp.open_browser": "False",
        "ServerApp.allow_remote_access": "True",  # by its name it is reached at the master's
        "ServerApp.allow_root": "True",
        "IdentityProvider.token": "",
        "PasswordIdentityProvider.hashed_password": "",
        "KernelManager.transport": "ipc",
    }
    # Compute nodes may see no Internet, and which release there is is the site's affair.
    offline = ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    options = [f"--{name}={value}" for name, value in own.items()]
    return [sys.executable, "-m", "jupyterlab", *offline, *arguments, *options]


def run(argv: Sequence[str], runtime: Path, jupyter: Jupyter, idle: Idle) -> int:
    """JupyterLab's exit code; 0 when it ends because it is idle, or is asked to."""
    # Kernels have sockets in the runtime folder, whose paths must be short.
    server = subprocess.Popen(argv, env={**os.environ, "JUPYTER_RUNTIME_DIR": str(runtime)})
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while True:
        try:
            return max(server.wait(idle.pause if idle.ready else _START_POLL), 0)
        except subprocess.TimeoutExpired:
            if not idle.ready and jupyter.answers():
                idle.begin()
            if not idle.expired():
                continue
        server.terminate()
        try:
            server.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        return 0


def main(arguments: Sequence[str]) -> int:
    """Ends when nobody has used it for long enough. 127 where JupyterLab is not installed."""
    parser = argparse.ArgumentParser(prog="python3 -m dethpc.exec.notebook", description="JupyterLab of a task")
    parser.add_argument("--path", default="/", help="the path below which it is seen")
    parser.add_argument("--folder", type=Path, help="where its files stay")
    parser.add_argument("--idle-timeout", type=float, metavar="SECONDS", help="end after so long without use")
    parser.add_argument("--idle-type", choices=RULES, default="kernels_or_terminals", help="what counts as use")
    parser.add_argument("arguments", nargs="*", help="options of JupyterLab's own")
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("jupyterlab") is None:
        return missing("JupyterLab", "pip install jupyterlab where you type det, or name an image that has it")
    if given.folder is not None:
        bring(given.folder)
        os.chdir(given.folder)
    path, socket_path = f"/{given.path.strip('/')}/".replace("//", "/"), os.environ[SOCKET]
    rule, jupyter = RULES[given.idle_type](), Jupyter(socket_path, path)

    def in_use() -> bool:
        with contextlib.suppress(OSError):
            return rule(jupyter)
        return True  # it starts, or is busy

    runtime = scratch.make("jupyter", "/tmp")
    try:
        idle = Idle("JupyterLab", given.idle_timeout, in_use)
        return run(command(socket_path, path, given.arguments), runtime, jupyter, idle)
    finally:
        remove(runtime)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
