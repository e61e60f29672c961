"""Authenticated connections between the workers of one task: one star, with the chief in the middle.

Both sides prove that they know the key (HMAC-SHA256 over fresh nonces) before a byte is unpickled, and every frame carries a
keyed hash over its position, direction and content. A frame is ``op (1 byte), length (8 bytes), hash (32 bytes), pickle``.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import pickle
import select
import socket
import struct
import time
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

from dethpc.errors import RendezvousError

Address = Union[Tuple[str, int], Path]
"""A host and TCP port, or the path of a UNIX socket."""

_HELLO = struct.Struct("!8sII")  # magic, rank, size
_MAGIC = b"dethpc/1"
_HEADER = struct.Struct("!BQ32s")
_NONCE = 32
_CAP = 1 << 62

# What a frame is part of. Workers that are not in the same call are told so instead of mixing up their data.
GATHER, ALLGATHER, BROADCAST, LEFT = 1, 2, 3, 9
_NAMES = {GATHER: "gather", ALLGATHER: "allgather", BROADCAST: "broadcast"}


class _Rejected(Exception):
    """The other side is no member of this group (now)."""


_open: weakref.WeakSet[Channel] = weakref.WeakSet()


def _after_fork() -> None:
    """A data loader's worker must not keep this worker's connections open: the others would not see it die."""
    for channel in list(_open):
        channel.close()


os.register_at_fork(after_in_child=_after_fork)


class Channel:
    """One authenticated connection. ``peer`` names the other side in errors."""

    def __init__(self, sock: socket.socket, key: bytes, peer: str, *, chief: bool) -> None:
        self.sock = sock
        self.peer = peer
        self._key = key
        self._ours, self._theirs = (b"C", b"W") if chief else (b"W", b"C")
        self._sent = self._received = 0
        _open.add(self)

    def send(self, op: int, stuff: Any) -> None:
        self.send_pickled(op, pickle.dumps(stuff, protocol=5))

    def send_pickled(self, op: int, data: bytes) -> None:
        head = _HEADER.pack(op, len(data), self._hash(self._ours, self._sent, op, data))
        self._sent += 1
        try:
            if len(data) < 65536:
                self.sock.sendall(head + data)
            else:
                self.sock.sendall(head)
                self.sock.sendall(data)
        except OSError as error:
            raise self.gone(error) from None

    def receive(self, op: int) -> Any:
        """Raises ConnectionError when the peer has left or says that another one has."""
        got, length, told = _HEADER.unpack(self._read(_HEADER.size))
        data = self._read(length)
        if not hmac.compare_digest(told, self._hash(self._theirs, self._received, got, data)):
            raise ConnectionError(f"a message from {self.peer} was altered in transit")
        self._received += 1
        stuff = pickle.loads(data)
        if got == LEFT:
            raise ConnectionError(stuff)
        if got != op:
            raise RuntimeError(
                f"the workers are out of step: this one calls {_NAMES[op]}(), {self.peer} calls {_NAMES.get(got, got)}()"
            )
        return stuff

    def say_left(self, why: str) -> None:
        """The last word on this connection. Closing it instead could discard the word before the peer has read it, since the
        peer's own data may be unread here; so it is only read empty and shut."""
        self.sock.settimeout(5)
        self.send(LEFT, why)
        self.sock.shutdown(socket.SHUT_WR)
        self.sock.setblocking(False)
        while self.sock.recv(1 << 20):
            pass

    def gone(self, error: object = None) -> ConnectionError:
        why = f" ({error})" if error else ""
        return ConnectionError(f"{self.peer} has left: it ended, crashed or its node is lost{why}")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()

    def _read(self, n: int) -> bytearray:
        if n > _CAP:
            raise ConnectionError(f"a message from {self.peer} is invalid")
        try:
            return _read_exactly(self.sock, n)
        except EOFError:
            raise self.gone() from None
        except OSError as error:
            raise self.gone(error) from None

    def _hash(self, direction: bytes, n: int, op: int, data: Union[bytes, bytearray]) -> bytes:
        digest = hashlib.blake2b(direction + struct.pack("!QB", n, op), key=self._key, digest_size=32)
        digest.update(data)
        return digest.digest()


class Chief:
    """Rank 0's end: a channel to every other rank."""

    def __init__(self, channels: Dict[int, Channel]) -> None:
        self._channels = channels

    def gather(self, op: int) -> List[Any]:
        """What every other worker sent, by rank. A worker that leaves is noticed at once, whoever is still awaited."""
        found: Dict[int, Any] = {}
        poll = select.poll()
        by_fd = {channel.sock.fileno(): rank for rank, channel in self._channels.items()}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        while len(found) < len(self._channels):
            for fd, _ in poll.poll():
                rank = by_fd[fd]
                found[rank] = self._guard(self._channels[rank].receive, op)
                poll.unregister(fd)
        return [found[rank] for rank in sorted(found)]

    def send(self, op: int, stuff: Any) -> None:
        data = pickle.dumps(stuff, protocol=5)
        for channel in self._channels.values():
            self._guard(channel.send_pickled, op, data)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def _guard(self, call: Callable[..., Any], *args: Any) -> Any:
        """Tell the others why, before this worker fails and leaves them waiting."""
        try:
            return call(*args)
        except (ConnectionError, RuntimeError) as error:
            for channel in self._channels.values():
                with contextlib.suppress(OSError):
                    channel.say_left(str(error))
            raise


def listen(address: Address) -> socket.socket:
    """Raises RendezvousError when the address is taken."""
    if isinstance(address, Path):
        sock = socket.socket(socket.AF_UNIX)
        if address.exists() and not _answers(address):
            address.unlink(missing_ok=True)
    else:
        sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(str(address) if isinstance(address, Path) else address)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise RendezvousError(
            f"the chief cannot listen at {address}: {error.strerror}; is another task using it?"
        ) from None
    return sock


def accept(sock: socket.socket, key: bytes, names: Sequence[str], timeout: float) -> Chief:
    """Wait for every rank but 0 (``names``: what to call each in errors) and close the listener.

    Raises RendezvousError that names who is missing.
    """
    deadline = time.monotonic() + timeout
    ranks = range(1, len(names))
    channels: Dict[int, Channel] = {}
    address = sock.getsockname()
    try:
        while len(channels) < len(ranks):
            sock.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                peer, _ = sock.accept()
            except socket.timeout:
                missing = ", ".join(names[rank] for rank in ranks if rank not in channels)
                for channel in channels.values():
                    channel.close()
                raise RendezvousError(f"after {timeout:.0f} s these workers have not joined: {missing}") from None
            try:
                rank, session = _welcome(peer, key, [rank for rank in ranks if rank not in channels], len(names))
            except (_Rejected, OSError, EOFError, struct.error):
                peer.close()
                continue
            channels[rank] = Channel(peer, session, names[rank], chief=True)
        return Chief(channels)
    finally:
        sock.close()
        if isinstance(address, str):
            with contextlib.suppress(OSError):
                os.unlink(address)


def connect(address: Address, key: bytes, rank: int, size: int, chief: str, timeout: float) -> Channel:
    """Raises RendezvousError when the chief cannot be reached in time or does not know the key."""
    deadline = time.monotonic() + timeout
    pause, why = 0.01, "nobody answers"
    while time.monotonic() < deadline:
        sock = socket.socket(socket.AF_UNIX) if isinstance(address, Path) else None
        try:
            if sock is not None:
                sock.settimeout(10)
                sock.connect(str(address))
            else:
                assert not isinstance(address, Path)
                sock = socket.create_connection(address, timeout=10)
            return Channel(sock, _introduce(sock, key, rank, size), chief, chief=False)
        except (_Rejected, EOFError, struct.error):
            why = "the listener has another key, or already has a worker of this rank"
        except OSError as error:
            why = error.strerror or str(error) or why
        if sock is not None:
            sock.close()
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
    raise RendezvousError(f"rank {rank} could not join {chief} at {address} within {timeout:.0f} s: {why}")


def _welcome(sock: socket.socket, key: bytes, awaited: List[int], size: int) -> Tuple[int, bytes]:
    sock.settimeout(10)
    nonce = os.urandom(_NONCE)
    sock.sendall(nonce)
    hello = bytes(_read_exactly(sock, _HELLO.size + _NONCE))
    proof = bytes(_read_exactly(sock, 32))
    if not hmac.compare_digest(proof, _proof(key, b"worker", nonce, hello)):
        raise _Rejected
    magic, rank, their_size = _HELLO.unpack(hello[: _HELLO.size])
    if magic != _MAGIC or rank not in awaited or their_size != size:
        raise _Rejected
    sock.sendall(_proof(key, b"chief", nonce, hello))
    _settle(sock)
    return rank, _proof(key, b"session", nonce, hello)


def _introduce(sock: socket.socket, key: bytes, rank: int, size: int) -> bytes:
    sock.settimeout(10)
    nonce = bytes(_read_exactly(sock, _NONCE))
    hello = _HELLO.pack(_MAGIC, rank, size) + os.urandom(_NONCE)
    sock.sendall(hello + _proof(key, b"worker", nonce, hello))
    if not hmac.compare_digest(bytes(_read_exactly(sock, 32)), _proof(key, b"chief", nonce, hello)):
        raise _Rejected
    _settle(sock)
    return _proof(key, b"session", nonce, hello)


def _proof(key: bytes, role: bytes, nonce: bytes, hello: bytes) -> bytes:
    return hmac.new(key, role + nonce + hello, hashlib.sha256).digest()


def _settle(sock: socket.socket) -> None:
    """From now on wait for as long as it takes, but notice a node that vanishes (in about a minute)."""
    sock.settimeout(None)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 60000),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def _read_exactly(sock: socket.socket, n: int) -> bytearray:
    data = bytearray(n)
    view, got = memoryview(data), 0
    while got < n:
        more = sock.recv_into(view[got:])
        if not more:
            raise EOFError
        got += more
    return data


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        return probe.connect_ex(str(path)) == 0
