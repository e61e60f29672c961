"""Limits on connections: how many may be open in all and without a token, how long a header is, and how long a request takes.

A connection is unauthenticated until a request on it has shown a valid token. Few of those are served at a time, which bounds the
memory of all of them; further ones wait in the kernel's queue. When the places are taken, a new connection replaces the one that
has kept the master waiting longest for its request, or for reading the response. So silent connections cannot keep others out,
though a flood delays them. Authenticated connections are never closed while they wait for a response, read one, or are WebSockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_UNAUTHENTICATED = 32
"""Connections of one listener that have shown no token yet."""

PATIENCE = 10.0
"""Seconds that an unauthenticated client has for a request, header and body, and for reading the response."""

GRACE = 0.25
"""The same while others wait for a place."""

SILENCE = 60.0
"""Seconds that the rest of a body may be silent when its sender has shown a token."""

MOST_HEADER_BYTES = 32 << 10
MOST_HEADER_LINES = 100

CLIENT = "client"
"""Where the state of a request holds the ``Client``."""

SWITCH = "switch"
"""Where the state of a request holds ``Connection.switch``."""

_END_OF_HEADER = re.compile(rb"\n\r?\n")


class Client:
    """The other end of a connection. ``peer``: as ``master.http.peer`` names it."""

    __slots__ = ("_changed", "authenticated", "peer")

    def __init__(self, peer: str, changed: Callable[[], None]) -> None:
        self.peer, self._changed = peer, changed
        self.authenticated = False  # by its last request

    def recognise(self, authenticated: bool) -> None:
        """For the thread of the event loop."""
        self.authenticated = authenticated
        self._changed()


class _Http(h11.Connection):
    """Refuses long headers before they are parsed, which takes many times their size: h11 itself limits only incomplete ones. An
    answer that was passed on has one date."""

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            received = self.trailing_data[0]
            end = _END_OF_HEADER.search(received)
            header = received[: end.end()] if end else received
            if len(header) > MOST_HEADER_BYTES or header.count(b"\n") > MOST_HEADER_LINES:
                raise h11.RemoteProtocolError("the header is too long", error_status_hint=431)
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"upgrade" for name, _ in event.headers):
            return _plain(event)
        return event

    def send(self, event: Any) -> Any:
        if isinstance(event, h11.Response):
            fields = list(event.headers)
            dates = [i for i, (name, _) in enumerate(fields) if name == b"date"]
            if len(dates) > 1:  # uvicorn's is the first; that of a service says when it answered
                del fields[dates[0]]
                event = h11.Response(status_code=event.status_code, headers=fields, reason=event.reason)
        return super().send(event)


def _plain(request: h11.Request) -> h11.Request:
    """Without the field that makes uvicorn answer a request to upgrade itself. ``Upgrade`` is still there for the application."""
    headers = [(name, value) for name, value in request.headers if name != b"connection"]
    return h11.Request(method=request.method, target=request.target, headers=headers, http_version=request.http_version)


class _Switched(asyncio.StreamReaderProtocol):
    """The bytes of an upgraded connection, whose end is reported to the ``Connection`` that it was."""

    def __init__(self, connection: Connection, limit: int) -> None:
        self.reader = asyncio.StreamReader(limit)
        super().__init__(self.reader)
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connection.connection_lost(exc)


class Connection(H11Protocol):
    """A connection of uvicorn that ``Connections`` counts and may close."""

    def __init__(self, among: Connections, peer: str, sock: socket.socket, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self.conn = _Http(h11.SERVER, MOST_HEADER_BYTES)
        self.http_client = Client(peer, among.notify)
        self.app_state = {**self.app_state, CLIENT: self.http_client, SWITCH: self.switch}
        self._among, self._sock = among, sock
        self._since = self._received_at = time.monotonic()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.server = self.server or ("", 0)  # a Unix socket: a proof for it is valid for no other address

    def data_received(self, data: bytes) -> None:
        self._received_at = time.monotonic()
        super().data_received(data)
        if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) > MOST_HEADER_BYTES:
            self.cut()  # pipelined requests would have to be kept

    async def switch(
        self, headers: list[tuple[bytes, bytes]], limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Answer the request to upgrade with ``headers`` and leave the connection's bytes to the caller, who reads at most
        ``limit`` ahead and closes it."""
        await self.flow.drain()
        switched = _Switched(self, limit)
        self.transport.write(self.conn.send(h11.InformationalResponse(status_code=101, headers=headers)))
        early, _ = self.conn.trailing_data
        self.transport.set_protocol(switched)
        switched.connection_made(self.transport)
        if early:
            switched.data_received(early)
        self.flow.resume_reading()
        writer = asyncio.StreamWriter(self.transport, switched, switched.reader, asyncio.get_running_loop())
        return switched.reader, writer

    def on_response_complete(self) -> None:
        self._since = time.monotonic()
        super().on_response_complete()
        self._among.notify()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state = {}  # which leads back here
        self._among.remove(self)

    def waited_for(self, now: float) -> float:
        """Seconds that the master has waited for this client; 0 while the client waits for the master, or may take its time."""
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_started:
            self._since = now
        if self.http_client.authenticated and self.conn.their_state is not h11.IDLE:
            return 0.0
        return now - self._since

    def late(self, now: float) -> bool:
        if self.http_client.authenticated and self.conn.their_state is h11.SEND_BODY:
            return now - self._received_at > SILENCE and not self.flow.read_paused
        return self.waited_for(now) > PATIENCE

    def cut(self) -> None:
        """Close it at once."""
        self._among.remove(self)
        transport: Any = self.transport
        if transport is not None:
            transport.abort()
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # in the middle of a TLS handshake, which fails now


class Connections:
    """The open connections of one listener, at most ``most``. For the thread of the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[Connection, None] = {}  # in the order in which they came
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        self._open[connection] = None

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self.notify()

    def notify(self) -> None:
        """A connection has ended, was authenticated, or has its response."""
        self._changed.set()

    async def place(self) -> None:
        """Wait for a place for one more connection. When all places are taken, the slowest client loses its own."""
        while not self._has_place():
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), GRACE)

    def close_late(self) -> None:
        """Close the connections whose clients are over their time."""
        now = time.monotonic()
        for connection in [connection for connection in self._open if connection.late(now)]:
            connection.cut()

    def cut(self) -> None:
        """Close all."""
        for connection in list(self._open):
            connection.cut()

    def _has_place(self) -> bool:
        unauthenticated = [connection for connection in self._open if not connection.http_client.authenticated]
        if len(unauthenticated) < MOST_UNAUTHENTICATED and len(self._open) < self._most:
            return True
        now = time.monotonic()
        full = len(self._open) >= self._most
        slowest = max(self._open if full else unauthenticated, key=lambda connection: connection.waited_for(now))
        if slowest.waited_for(now) <= GRACE:
            return False
        slowest.cut()
        return True
