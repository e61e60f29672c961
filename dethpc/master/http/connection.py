"""An HTTP/1.1 connection of uvicorn, with limits that hold before a request has shown a valid token."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dethpc.master.http import door
from dethpc.master.http.door import Arrival, Door, Visit

MOST_HEADER_BYTES = 32 << 10
MOST_HEADER_LINES = 100

VISIT = "visit"
"""Where a request's state holds the ``Visit``."""

_END_OF_HEADER = re.compile(rb"\n\r?\n")


class Wire(h11.Connection):
    """Refuses long headers before they are taken apart, which takes many times their size. The head of an answer goes with the
    beginning of its body where that has a length, and so follows at once: to hand each to the system costs as much as both."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MOST_HEADER_BYTES)
        self._head = b""

    def send(self, event: Any) -> Any:
        sent: bytes | None = super().send(event)
        if sent is None:
            return None
        if isinstance(event, h11.Response) and any(name == b"content-length" for name, _ in event.headers):
            self._head = sent
            return b""
        whole, self._head = self._head + sent, b""
        return whole

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            received = self.trailing_data[0]
            end = _END_OF_HEADER.search(received)
            header = received[: end.end()] if end else received
            if len(header) > MOST_HEADER_BYTES or header.count(b"\n") > MOST_HEADER_LINES:
                raise h11.RemoteProtocolError("the header is too long", error_status_hint=431)
        return super().next_event()


class Connection(H11Protocol):
    """A connection that the door can judge and close."""

    def __init__(self, the_door: Door, arrival: Arrival, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self.conn = Wire()
        self.visit = Visit(arrival.peer)
        self.app_state = {**self.app_state, VISIT: self.visit}
        self._door, self._sock = the_door, arrival.sock
        self._since = self._heard = time.monotonic()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.server = self.server or ("", 0)  # a Unix socket: an address that proves nothing to who went to another one

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        super().data_received(data)
        if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) > MOST_HEADER_BYTES:
            self.cut()  # it sends requests without waiting for answers, and they would have to be kept

    def on_response_complete(self) -> None:
        self._since = time.monotonic()
        super().on_response_complete()
        self._door.admit()  # a request has shown a token, or the one that comes next waits longer already

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._door.leave(self)

    def waited_for(self, now: float) -> float:
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_started:
            self._since = now
        return now - self._since

    def late(self, now: float) -> bool:
        waited_for = self.waited_for(now)
        if not self.visit.known or self.conn.their_state is h11.IDLE:
            return waited_for > door.PATIENCE
        if self.conn.their_state is h11.SEND_BODY:
            return now - self._heard > door.SILENCE and not self.flow.read_paused
        return False  # it takes its answer as slowly as it likes: somebody who follows a log may have stopped to read

    def cut(self) -> None:
        transport: Any = self.transport
        if transport is not None:
            transport.abort()
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # in the middle of a TLS handshake, which fails now
