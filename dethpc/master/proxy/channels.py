"""The bytes of a connection to a service. What is received is passed on as the same object: a parser or a buffer in between would
copy each byte several times.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

MOST = 1 << 20
"""Bytes that are read at once. A reader that waits holds none."""


class Channel:
    """A connected socket, for the event loop alone. One task may read while another one writes; both have ended at ``close``."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    @property
    def idle(self) -> bool:
        """Whether it is open and nothing has come that nobody waits for."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def read(self) -> bytes:
        """Nothing at the end. Raises OSError."""
        await asyncio.sleep(0)  # others have their turn, even where both ends are always ready
        return await asyncio.get_running_loop().sock_recv(self._sock, MOST)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Returns once the kernel has all of it. Raises OSError."""
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    def write_eof(self) -> None:
        """Raises OSError."""
        self._sock.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """End both directions: who reads or writes meets the end."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()
