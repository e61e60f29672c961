"""How many files of dethpc a request passes in a warm master: modules of which a function is called between the request and its
answer, from the server's protocol to the database. A reader who follows a request has to know that many.

Each request is sent twenty times over one connection; what is called in each of them counts, so the master's own rounds do not. A
create waits for its commit, in the ledger's thread.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import dethpc
from benchmarks.frame import Figure, Row, run
from benchmarks.stand_in import StandIn

ROUNDS = 20
LIST, CREATE = 14, 45
PACKAGE = str(Path(dethpc.__file__).parent)
CONFIG = """\
name: request files
entrypoint: python3 train.py
searcher: {name: single, metric: loss}
hyperparameters: {lr: 0.1}
"""


class Calls:
    """The files of dethpc of which a function is called in any thread, while they are recorded."""

    def __init__(self) -> None:
        self._files: set[str] | None = None
        threading.setprofile(self._note)  # of threads that begin from now on

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        files = self._files
        if files is not None and event == "call":
            files.add(frame.f_code.co_filename)

    def of(self, act: Callable[[], object]) -> set[str]:
        files = self._files = set()
        act()
        self._files = None
        return {Path(file).relative_to(PACKAGE).as_posix() for file in files if file.startswith(PACKAGE)}


@contextmanager
def master() -> Iterator[Callable[[str, str, Any], None]]:
    """A function that sends a request to a master in this process, over one connection."""
    from dethpc.config.site import PoolConfig, SiteConfig
    from dethpc.master import listening
    from dethpc.master.daemon import Daemon
    from dethpc.master.installation import cluster_id
    from dethpc.master.watching.live_runs import Pace
    from dethpc.rundir.home import Home

    with tempfile.TemporaryDirectory(prefix="dethpc-bench-") as folder:
        home = Home(Path(folder))
        home.make()
        site = SiteConfig(cluster_name="bench", pools={"default": PoolConfig(window=1)})
        daemon = Daemon(home, site, StandIn(1), cluster_id(home), Pace(fastest_poll=60.0, slowest_poll=60.0))
        thread = threading.Thread(target=daemon.serve, args=(listening.named("127.0.0.1", "the benchmark"), 0))
        thread.start()
        while not home.master_file.exists() or not (url := json.loads(home.master_file.read_text())["url"]):
            time.sleep(0.05)
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        headers = {"Authorization": f"Bearer {home.token.read_text().strip()}", "Content-Type": "application/json"}

        def send(method: str, path: str, body: Any) -> None:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as response:
                text = response.read()
            assert response.status == 200, text

        try:
            yield send
        finally:
            connection.close()
            daemon.stop()
            thread.join()


def rows(options: argparse.Namespace) -> Iterator[Row]:
    calls, names = Calls(), itertools.count()
    with master() as send:

        def create() -> None:
            body = {"config": CONFIG.replace("files", str(next(names))), "activate": False}
            send("POST", "/api/v1/experiments", body)

        requests: dict[str, tuple[Callable[[], None], int]] = {
            "POST /api/v1/experiments": (create, CREATE),
            "GET /api/v1/experiments": (lambda: send("GET", "/api/v1/experiments", None), LIST),
        }
        for name, (request, limit) in requests.items():
            for _ in range(3):
                request()
            files = set.intersection(*(calls.of(request) for _ in range(ROUNDS)))
            print(f"{name}: {', '.join(sorted(files))}", file=sys.stderr)
            yield Row(f"{name}: files of dethpc", "files", Figure(len(files)), limit=limit)


if __name__ == "__main__":
    run(__doc__, rows)
