"""A connection between two nodes of an attempt: JSON lines, sealed once both have proved that they know the run's secret.

The side that was connected to sends ``{"nonce"}``, the other ``{"role", "rank", "nonce", "proof"}``, the first ``{"proof"}``. From
then on each line begins with its seal in hexadecimal digits and a space.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any, NamedTuple, Optional

from dethpc.rundir.secret import MARK, Seal, Secret, nonce

TIMEOUT = 5.0
MAX_UNPROVED = 4 << 10
MAX_MESSAGE = 1 << 20
_CHIEF = "chief"


class Caller(NamedTuple):
    """Who has proved to be at the other end."""

    role: str
    rank: int


class Link:
    """``rank`` is the other node's, once it has proved itself; ``lost`` once the connection is gone, or anything comes that is no
    message."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rank: Optional[int] = None
        self._challenge = nonce().hex()
        self._seal: Optional[Seal] = None
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

    # --- who is there

    def challenge(self) -> None:
        """The first word of the side that was connected to."""
        self.send({"nonce": self._challenge})

    def caller(self, secret: Secret, hello: dict[str, Any]) -> Optional[Caller]:
        """Who the other side's ``hello`` proves to be; None: a stranger."""
        role, rank, proof = str(hello.get("role")), hello.get("rank"), _bytes(hello.get("proof"))
        if not isinstance(rank, int) or role == _CHIEF:
            return None
        transcript = _transcript(rank, self._challenge, str(hello.get("nonce")))
        return Caller(role, rank) if secret.accepts(proof, role, transcript) else None

    def welcome(self, secret: Secret, hello: dict[str, Any]) -> None:
        """Let a ``caller`` in."""
        transcript = _transcript(hello["rank"], self._challenge, str(hello.get("nonce")))
        self.send({"proof": secret.proof(_CHIEF, transcript).hex()})
        self.rank, self._seal = hello["rank"], secret.seal(True, transcript)

    def introduce(self, secret: Secret, role: str, rank: int) -> bool:
        """The connecting side's part: whether the other has proved to be the chief. If not, the link is closed."""
        answer = nonce().hex()
        until = time.monotonic() + TIMEOUT
        transcript = _transcript(rank, str(self.next(until).get("nonce")), answer)
        self.send({"role": role, "rank": rank, "nonce": answer, "proof": secret.proof(role, transcript).hex()})
        if not secret.accepts(_bytes(self.next(until).get("proof")), _CHIEF, transcript):
            self.close()  # another service has the port
            return False
        self.rank, self._seal = 0, secret.seal(False, transcript)
        self.sock.settimeout(TIMEOUT)
        return True

    # --- messages

    def send(self, obj: dict[str, Any]) -> None:
        """Never raises: a connection that fails is ``lost``."""
        line = json.dumps(obj).encode()
        if self._seal is not None:
            line = self._seal.mark(line).hex().encode() + b" " + line
        try:
            self.sock.sendall(line + b"\n")
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
        limit = MAX_UNPROVED if self._seal is None else MAX_MESSAGE
        try:
            if max(map(len, [*lines, self._buffer])) > limit:
                raise ValueError
            if self._seal is None and lines and (lines[1:] or self._buffer):
                raise ValueError  # until the proofs are through, each side waits for the other's word
            return [self._message(line) for line in lines]
        except (ValueError, RecursionError):
            self.lost = True
            return []

    def _message(self, line: bytes) -> dict[str, Any]:
        """Raises ValueError, RecursionError."""
        if self._seal is not None:
            mark, _, line = line.partition(b" ")
            if not self._seal.fits(_bytes(mark.decode("ascii")), line):
                raise ValueError
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError
        return message

    def next(self, until: Optional[float] = None) -> dict[str, Any]:
        """Wait for one message, where the protocol says that one comes, not beyond ``until`` on the monotonic clock. Empty when
        the link is lost instead."""
        while not self.lost:
            if until is not None:
                self.sock.settimeout(max(0.001, until - time.monotonic()))
            messages = self.receive()
            if messages:
                return messages[0]
        return {}

    def final(self, until: float) -> dict[str, Any]:
        """The message after which the connection carries bytes of another kind, none of which is read here. Waits as ``next`` does;
        empty when the link is lost instead."""
        line = self._buffer
        while not self.lost and len(line) < MAX_UNPROVED:
            self.sock.settimeout(max(0.001, until - time.monotonic()))
            try:
                piece, newline, _ = self.sock.recv(MAX_UNPROVED, socket.MSG_PEEK).partition(b"\n")
                line += self.sock.recv(len(piece) + len(newline))
                if newline:
                    return self._message(line[:-1])
                self.lost = not piece
            except (OSError, ValueError, RecursionError):
                self.lost = True
        self.lost = True
        return {}

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def _transcript(rank: int, challenge: str, answer: str) -> bytes:
    return json.dumps([rank, challenge, answer]).encode()


def _bytes(hexadecimal: Any) -> bytes:
    """Nothing where it is no mark or proof."""
    if isinstance(hexadecimal, str) and len(hexadecimal) == 2 * MARK:
        with contextlib.suppress(ValueError):
            content = bytes.fromhex(hexadecimal)
            return content if content.hex() == hexadecimal else b""  # one way to write it
    return b""


def _plain(address: str) -> str:
    """IPv4 addresses as such, also on a socket that speaks both."""
    return address[len("::ffff:") :] if address.startswith("::ffff:") else address
