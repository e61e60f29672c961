"""``python3 -m dethpc.exec.tensorboard``: TensorBoard on a Unix socket, over the event files of trials.

It listens on no port: whoever may connect to one on this node would see what it shows. For the same reason it reads the files
itself, and not through TensorBoard's data server, which listens on one.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Sequence

from dethpc import storage
from dethpc.domain.secrets import hide_passwords
from dethpc.errors import DethpcError
from dethpc.exec.service import SOCKET, Idle, details, missing
from dethpc.rundir import scratch

MIRROR_EVERY = 10.0
"""Seconds between two looks for what trials have written since, at least."""


class Source(NamedTuple):
    """Event files of one trial, or of all trials of an experiment: those in ``folder`` beside the checkpoints of ``storage``.
    ``name`` is the path at which TensorBoard shows them."""

    name: str
    storage: Mapping[str, Any]
    folder: str


class Requests:
    """A WSGI application around another, which notes when it is asked for something."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._came = threading.Event()

    def __call__(self, environ: Mapping[str, Any], start_response: Any) -> Iterable[bytes]:
        self._came.set()
        return self._application(environ, start_response)

    def any(self) -> bool:
        """Whether there was a request since this was last called."""
        came = self._came.is_set()
        self._came.clear()
        return came


class Mirror:
    """Shows all sources below ``logdir``, and copies what is new in those that are no folders."""

    def __init__(self, sources: Sequence[Source], logdir: Path) -> None:
        self._sources, self._logdir = sources, logdir
        self._complaints: dict[str, str] = {}

    def update(self) -> None:
        """Why a source cannot be read is said once; the others go on."""
        for source in self._sources:
            try:
                target = self._logdir / source.name
                target.parent.mkdir(parents=True, exist_ok=True)
                storage.build(source.storage).mirror(source.folder, target)
                self._complaints.pop(source.name, None)
            except (OSError, DethpcError) as error:
                self._complain(source.name, hide_passwords(str(error)))

    def run(self) -> None:
        """For ever, with a twentieth of the time at most."""
        while True:
            began = time.monotonic()
            self.update()
            time.sleep(max(MIRROR_EVERY, 20 * (time.monotonic() - began)))

    def _complain(self, name: str, message: str) -> None:
        if self._complaints.get(name) != message:
            self._complaints[name] = message
            sys.stderr.write(f"dethpc: {name}: its TensorBoard files cannot be read now: {message}\n")


def serve(logdir: Path, socket: str, path: str, arguments: Sequence[str]) -> Requests:
    """Start TensorBoard in a thread of its own. Raises ImportError where it is not installed."""
    from tensorboard import program
    from werkzeug import serving

    class Handler(serving.WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            """Requests are not logged."""

    class Server(serving.ThreadedWSGIServer):
        def __init__(self, application: Any, flags: Any) -> None:
            requests.append(Requests(application))
            super().__init__(f"unix://{socket}", 0, requests[0], Handler)

        def get_url(self) -> str:
            return f"unix://{socket}"

    requests: List[Requests] = []
    tensorboard = program.TensorBoard(server_class=Server)
    # The last value of an option counts: none of the user's opens a port.
    own = ["--logdir", str(logdir), "--load_fast", "false", "--path_prefix", path.rstrip("/")]
    tensorboard.configure(["tensorboard", "--reload_multifile", "true", *arguments, *own])
    tensorboard.launch()
    return requests[0]


def main(arguments: Sequence[str]) -> int:
    """Ends when nobody has used it for long enough. 127 where TensorBoard is not installed."""
    parser = argparse.ArgumentParser(prog="python3 -m dethpc.exec.tensorboard", description="TensorBoard of trials")
    parser.add_argument("--path", default="", help="the path below which it is seen")
    parser.add_argument("--idle-timeout", type=float, metavar="SECONDS", help="end after so long without a request")
    parser.add_argument("arguments", nargs="*", help="options of TensorBoard's own")
    given = parser.parse_args(arguments)
    sources = [Source(**source) for source in details()["sources"]]
    logdir = scratch.make_until_exit("tensorboard")
    try:
        requests = serve(logdir, os.environ[SOCKET], given.path, given.arguments)
        from tensorboard.version import VERSION
    except ImportError as error:
        return missing(
            "TensorBoard", f"pip install tensorboard where you type det, or name an image that has it ({error})"
        )
    threading.Thread(target=Mirror(sources, logdir).run, name="dethpc-mirror", daemon=True).start()
    more = f" and {len(sources) - 5} more" if len(sources) > 5 else ""
    names = ", ".join(source.name for source in sources[:5])
    sys.stderr.write(f"dethpc: TensorBoard {VERSION} at {given.path} shows {names}{more}\n")
    idle = Idle("TensorBoard", given.idle_timeout, requests.any)
    idle.begin()
    while not idle.expired():
        time.sleep(idle.pause)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
