"""Unix sockets on which the owner's programs and reverse proxy connect: no other user can, and no port is used."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import tempfile
from pathlib import Path

from dethpc.client.address import is_private
from dethpc.errors import Refused
from dethpc.master.durable.lease import Lease

log = logging.getLogger(__name__)

LONGEST = 107
"""Bytes that the kernel takes as the path of a socket."""

_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


class UnixListener:
    """Listens at ``path`` until it is closed. What a master that died has left there is replaced.

    Raises Refused when the path is too long, is no socket, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if len(os.fsencode(path)) > LONGEST:
            raise Refused(
                f"master.socket: {path} has {len(os.fsencode(path))} bytes; the kernel takes at most {LONGEST}"
            )
        if path.exists() and not path.is_socket():
            raise Refused(f"master.socket: {path} is there already and is no socket; name another path")
        staged = path.with_name(f".{path.name[:40]}.{os.getpid()}")
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            with contextlib.suppress(FileNotFoundError):
                staged.unlink()
            self.socket.bind(str(staged))
            staged.chmod(0o600)
            self.socket.listen()
            staged.replace(path)  # at once: nobody meets a socket that others may use, nor none
        except OSError as error:
            self.socket.close()
            raise Refused(f"master.socket: cannot listen on {path}: {error.strerror or error}") from error
        self._made = path.stat().st_ino

    @property
    def stands(self) -> bool:
        """The file is the one that was made here."""
        try:
            return self.path.stat().st_ino == self._made
        except OSError:
            return False

    def remove(self) -> None:
        """Take the file away, unless another master has put its own there."""
        if self.stands:
            with contextlib.suppress(OSError):
                self.path.unlink()


class OwnerSocket:
    """The socket of the owner's programs on this machine, which ``master.json`` names. The folder of random name, on a local disk,
    is the owner's alone, so what listens there is the owner's master."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._listener: UnixListener | None = None
        self.renew()

    def renew(self) -> socket.socket | None:
        """The socket, made anew if its file has gone; None if it cannot be made."""
        if self._listener is None or not self._listener.stands:
            before, self._listener = self._lease.owner_socket, None
            folder = Path(before).parent if before else None  # of a master that died, too
            try:
                if folder is None or not is_private(folder):
                    place = tempfile.gettempdir()
                    place = place if len(os.fsencode(place)) < LONGEST // 2 else "/tmp"  # noqa: S108 # nosec B108
                    folder = Path(tempfile.mkdtemp(prefix="dethpc-", dir=place))
                self._lease.owner_socket = str(folder / "master")
                self._listener = UnixListener(folder / "master")
            except (OSError, Refused) as error:
                log.warning("the owner's programs connect by TCP alone: %s", error)
        return self._listener.socket if self._listener else None

    def remove(self) -> None:
        """With its folder."""
        if self._listener is not None:
            self._listener.remove()
            with contextlib.suppress(OSError):
                self._listener.path.parent.rmdir()


def user_of(sock: socket.socket) -> str:
    """Who is at the other end of a Unix socket, as ``peer.Peers`` names peers."""
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return "gone"
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return f"user {user}"
