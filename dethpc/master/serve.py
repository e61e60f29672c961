"""Starts a master from a home and a site configuration, and serves until a signal ends it."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from dethpc.master import listening
from dethpc.master.daemon import Daemon
from dethpc.master.http import server, unix_socket
from dethpc.master.installation import cluster_id, site_of
from dethpc.master.own_log import LogFormat, OncePerMinute
from dethpc.master.scheduler import find_scheduler
from dethpc.rundir.filesystem import filesystem, sqlite_warning
from dethpc.rundir.home import Home
from dethpc.scheduler.open_files import raise_limit

log = logging.getLogger(__name__)

LOG_BYTES, LOG_FILES = 10 << 20, 3
"""How long ``master.log`` grows before it becomes ``master.log.1``, and how many of those are kept."""

TURN = 0.001
"""Seconds after which a thread that computes lets another one have its turn. A request waits for the event loop's turn several
times, each time this long, while some other thread has a large answer to make."""


def serve(root: Path, host: str | None, port: int, site_file: Path | None = None) -> None:
    """Be the master until a signal ends it. Raises LeaseHeld when there is one already."""
    home = Home(root)
    home.make()
    to_file = RotatingFileHandler(home.log, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
    to_file.setFormatter(LogFormat())
    logging.basicConfig(level=logging.INFO, handlers=[to_file])
    for name in ("alembic", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("asyncio", "uvicorn.error", server.__name__, unix_socket.__name__):
        logging.getLogger(name).addFilter(OncePerMinute())
    raise_limit()
    site = site_of(home, site_file)
    if doubt := sqlite_warning(filesystem(home.root), str(home.root), site.database):
        log.warning("%s", doubt)
    for line in site.ignored:
        log.warning("%s", line)
    scheduler, pace = find_scheduler(home, site)
    daemon = Daemon(home, site, scheduler, cluster_id(home), pace)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    if named := host or site.master.host:
        where = listening.named(named, "--host" if host else "master.host")
    else:
        where = listening.chosen(scheduler, daemon.lease.hosts)
    settle()
    daemon.serve(where, port or site.master.port)


def settle() -> None:
    """What is there by now stays: it is never looked through again. What the start alone needed goes back to the system.

    It affects the whole process: call it only in one that runs nothing but the master.
    """
    gc.freeze()
    with contextlib.suppress(ImportError, OSError, AttributeError):  # a Python built without libffi, or no glibc
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    sys.setswitchinterval(TURN)
