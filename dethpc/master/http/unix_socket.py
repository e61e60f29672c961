"""A Unix socket on which the owner's reverse proxy connects: no other user can, and no port is used."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

from dethpc.errors import Refused

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

    def remove(self) -> None:
        """Take the file away, unless another master has put its own there."""
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._made:
                self.path.unlink()


def user_of(sock: socket.socket) -> str:
    """Who is at the other end of a Unix socket, as ``peer.Peers`` names peers."""
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return "gone"
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return f"user {user}"
