"""A connection between two nodes of an attempt: JSON lines, after both have proved that they know the run's token."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
from typing import Any, Optional

TIMEOUT = 5.0
MAX_UNPROVED = 4 << 10
MAX_MESSAGE = 1 << 20


class Secret:
    """Proofs of knowing the token. The token itself never travels, and a proof is good for one connection."""

    def __init__(self, token: str, attempt: str) -> None:
        self._key = hmac.new(token.encode(), f"rendezvous {attempt}".encode(), hashlib.sha256).digest()

    def proof(self, role: str, rank: int, challenge: str, answer: str) -> str:
        text = json.dumps([role, rank, challenge, answer]).encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

    def accepts(self, proof: Any, role: str, rank: int, challenge: str, answer: str) -> bool:
        return isinstance(proof, str) and hmac.compare_digest(
            proof.encode(), self.proof(role, rank, challenge, answer).encode()
        )


def nonce() -> str:
    return secrets.token_hex(16)


class Link:
    """``rank`` is the other node's, once it has proved itself; ``lost`` once the connection is gone."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rank: Optional[int] = None
        self.challenge = nonce()
        self.lost = False
        self._buffer = b""
        sock.settimeout(TIMEOUT)
        # A node that loses its power says no good-bye: ask after it, and give it up after some 90 s.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def peer_address(self) -> str:
        return _plain(self.sock.getpeername()[0])

    @property
    def own_address(self) -> str:
        return _plain(self.sock.getsockname()[0])

    def send(self, obj: dict[str, Any]) -> None:
        """Never raises: a connection that fails is ``lost``."""
        try:
            self.sock.sendall(json.dumps(obj).encode() + b"\n")
        except OSError:
            self.lost = True

    def receive(self) -> list[dict[str, Any]]:
        """Whole messages that are there now; waits for the first bytes at most ``TIMEOUT`` seconds. Sets ``lost`` at
        the end of the connection and on anything that is no message."""
        try:
            data = self.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.lost = True
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        limit = MAX_UNPROVED if self.rank is None else MAX_MESSAGE
        try:
            if max(map(len, [*lines, self._buffer])) > limit:
                raise ValueError
            messages = [json.loads(line) for line in lines]
            if not all(isinstance(message, dict) for message in messages):
                raise ValueError
            return messages
        except ValueError:
            self.lost = True
            return []

    def next(self) -> dict[str, Any]:
        """Wait for one message, where the protocol says that one comes. Empty when the link is lost instead."""
        while not self.lost:
            messages = self.receive()
            if messages:
                return messages[0]
        return {}

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def _plain(address: str) -> str:
    """IPv4 addresses as such, also on a socket that speaks both."""
    return address[len("::ffff:") :] if address.startswith("::ffff:") else address
