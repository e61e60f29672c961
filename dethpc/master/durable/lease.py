"""One master per user and cluster: ``master.json`` is address and lease in one.

A master renews it; another that finds it fresh refuses to start. A master that finds another's name in it stops at once,
before its next commit and before its next word to the scheduler.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dethpc.client.address import local_socket
from dethpc.client.proof import boot_id
from dethpc.errors import LeaseHeld, Refused, RunDirError
from dethpc.rundir import process
from dethpc.rundir.files import read_json, write_json

log = logging.getLogger(__name__)

FRESH = 60.0
"""Seconds after which a lease from another host that is not renewed counts as abandoned."""

RENEW = 15.0
"""Seconds between renewals."""

STOOD_STILL = 1.0
"""Seconds between a look at the file and its renewal that leave room for another master."""

PATIENCE = RENEW + 5.0
"""Seconds that a master which starts gives a living one to mend a damaged file."""


class Lease:
    def __init__(self, path: Path, cluster_id: str) -> None:
        self._path = path
        self._host = socket.gethostname()
        self._started_at = time.time()
        self.cluster_id = cluster_id
        self.generation = 0
        self.port = 0  # on which this master listens, or the one before it did; 0: none is known
        self.hosts: tuple[str, ...] = ()  # at which it listens, or the one before it did on this machine
        self._checked_at = 0.0
        self._renewed_at = 0.0  # epoch seconds
        self._renewed = 0.0  # the same moment, monotonic
        self._content: dict[str, Any] = {}
        self._certificate: Callable[[], str] | None = None
        self._serves: Mapping[str, str] | None = None
        self.socket: str | None = None  # a Unix socket on which the master listens besides
        self.build = ""  # that which the master runs
        self.owner_socket: str | None = None  # that of the owner's programs on this machine, or of the master before

    def take(self) -> None:
        """Raises LeaseHeld while another master is alive, Refused when the file cannot be written."""
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(lock)
            held = self._when_mended()
            ours = held is not None and held.get("cluster_id", self.cluster_id) == self.cluster_id
            if held is not None and ours and alive(held) and (not _is_ahead(held) or self._beats(held)):
                raise LeaseHeld(
                    f"a master is already running: {held.get('url') or 'starting'} (pid {held.get('pid')} on {held.get('host')})"
                )
            self.generation = int((held or {}).get("generation", 0)) + 1
            self.port = int((held or {}).get("port", 0))
            if held is not None and ours and held.get("host") == self._host:
                self.hosts = tuple(map(str, held.get("hosts", ())))
            self.owner_socket = local_socket(held) if held and ours else None  # a copied home names that of another
            try:
                self._write("")
            except IsADirectoryError:
                raise Refused(f"{self._path} is a directory, where a file belongs: rm -r {self._path}") from None
        finally:
            os.close(lock)

    def publish(
        self,
        url: str,
        certificate: Callable[[], str] | None = None,
        serves: Mapping[str, str] | None = None,
    ) -> None:
        """Say where this master listens. ``certificate``: gives the SHA-256 of what it shows there; asked at each renewal.
        ``serves``: which scheduler."""
        self._certificate, self._serves = certificate, serves
        self.port = urlsplit(url).port or self.port
        self._write(url)

    def renew(self) -> None:
        """When it is time. Raises LeaseHeld when another master has taken over."""
        if 0 <= time.time() - self._renewed_at < RENEW:  # before it: somebody has set the clock back
            return
        self._checked_at = 0.0  # what is written over must still be ours
        looked = time.monotonic()
        self.check()
        self._write_over(looked)

    def check(self) -> None:
        """Raises LeaseHeld when another master has taken over. Looks at the file at most once a second."""
        now = time.monotonic()
        if now - self._checked_at < 1.0:
            return
        held = self._mended()
        if held is None or held.get("generation") != self.generation or held.get("pid") != os.getpid():
            raise LeaseHeld(f"another master has taken over: {(held or {}).get('url', 'its file is gone')}")
        self._checked_at = now

    def _mended(self) -> dict[str, Any] | None:
        """What the file says. One that is damaged is nobody else's word: this master writes it again."""
        looked = time.monotonic()
        try:
            return _read(self._path)
        except RunDirError as error:
            log.warning("%s; this master writes it again", error)
            self._write_over(looked)
            return self._content

    def _write_over(self, looked: float) -> None:
        """Write again what was this master's at ``looked``, in monotonic seconds.

        Raises LeaseHeld when the master stood still in between for so long that another may have taken over, whose word is
        written over now: then both end, and the next command starts one.
        """
        renewed = self._renewed
        self._write(str(self._content.get("url", "")))
        now = time.monotonic()
        if now - looked >= STOOD_STILL and now - renewed >= FRESH:
            raise LeaseHeld(
                f"this master stood still for {now - looked:.0f} s while it renewed its lease: another may have taken over"
            )

    def _when_mended(self) -> dict[str, Any] | None:
        """What the file says. A master that lives mends a damaged one; None once it should have done so."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return _read(self._path)
            except RunDirError as error:
                if time.monotonic() >= until:
                    log.warning("%s, and no master mends it; this one takes its place", error)
                    return None
                time.sleep(0.1)

    def _beats(self, held: dict[str, Any]) -> bool:
        """Whether another heartbeat follows. A clock that was ahead when its host died must not keep others out until then."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            time.sleep(0.1)
            with contextlib.suppress(RunDirError):
                if (_read(self._path) or {}).get("heartbeat") != held.get("heartbeat"):
                    return True
        return False

    def release(self) -> None:
        """Leave no address behind; the generation stays. What its holder has done stands, even where this cannot be written: a
        lease ends with its process."""
        try:
            self.check()
            self._content.update(url="", pid=0)
            write_json(self._path, self._content)
        except LeaseHeld:
            pass
        except OSError as error:
            log.warning("%s cannot be written: %s; the lease ends with this process", self._path, error)

    def _write(self, url: str) -> None:
        self._content = {
            "url": url,
            "host": self._host,
            "pid": os.getpid(),
            "pid_started": process.started(os.getpid()),
            "started_at": self._started_at,
            "generation": self.generation,
            "cluster_id": self.cluster_id,
            "heartbeat": time.time(),
            "port": self.port,
            "hosts": list(self.hosts),
        }
        if self._certificate is not None:
            self._content["certificate"] = self._certificate()
        if self.socket is not None:
            self._content["socket"] = self.socket
        if self.owner_socket is not None:
            self._content.update(owner_socket=self.owner_socket, boot_id=boot_id())
        if self.build:
            self._content["build"] = self.build
        if self._serves is not None:
            self._content["scheduler"] = dict(self._serves)
        write_json(self._path, self._content)
        self._renewed_at, self._renewed = time.time(), time.monotonic()


_FIELDS: dict[str, tuple[type, ...]] = {
    "pid": (int,),
    "generation": (int,),
    "heartbeat": (float, int),
    "url": (str,),
    "port": (int,),
    "hosts": (list,),
}


def _read(path: Path) -> dict[str, Any] | None:
    """None: there is no file. Raises RunDirError when it is no master's word."""
    held = read_json(path)
    if held is None:
        return None
    for name, kinds in _FIELDS.items():
        if not isinstance(held.get(name, kinds[0]()), kinds):
            raise RunDirError(f"{path} is damaged: {name} is {held[name]!r}")
    return held


def alive(held: dict[str, Any]) -> bool:
    """Whether the master that wrote ``held`` can be taken to live. On its own host its process decides, elsewhere its heartbeat."""
    if not held.get("pid"):
        return False
    if held.get("host") == socket.gethostname():
        return process.lives(held)
    return time.time() - float(held.get("heartbeat", 0)) < FRESH


def _is_ahead(held: dict[str, Any]) -> bool:
    """Whether the clock of another host says nothing of how old its heartbeat is."""
    return held.get("host") != socket.gethostname() and float(held.get("heartbeat", 0)) - time.time() > FRESH


def _lock(fd: int) -> None:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        # Some shared file systems have no locks; the doctor says so. The generation still tells two masters apart.
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
