"""Authenticated connections between the workers of one task: one star, with the chief in the middle.

Both sides prove that they know the task's secret before a byte is unpickled, and all that follows is sealed (``rundir/secret``).
A frame is a head of operation (1 byte), form (1 byte) and length (8 bytes), its mark (32 bytes), the content, its mark. The length
is believed, and the content read, once the head's mark fits; it is unpickled once its own does. What JSON gives back as it was
travels as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import socket
import struct
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, Union

from dethpc.errors import RendezvousError
from dethpc.rundir.secret import MARK, NONCE, Seal, Secret, nonce

Address = Union[Tuple[str, int], Path]
"""A host and TCP port, or the path of a UNIX socket."""

_HELLO = struct.Struct("!8sII")  # magic, rank, size
_MAGIC = b"dethpc/2"
_HEAD = struct.Struct("!BBQ")
_JSON, _PICKLE = 1, 2
_STRANGERS = 256  # connections whose proof is awaited at once; the oldest of more is given up
_PROOF_SECONDS = 10.0

# What a frame is part of. Workers that are not in the same call are told so instead of mixing up their data.
GATHER, ALLGATHER, BROADCAST, LEAVE = 1, 2, 3, 9
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

    def __init__(self, sock: socket.socket, seal: Seal, peer: str) -> None:
        self.sock = sock
        self.peer = peer
        self._seal = seal
        _open.add(self)

    def send(self, op: int, stuff: Any) -> None:
        self.send_packed(op, pack(stuff))

    def send_packed(self, op: int, packed: Tuple[int, bytes]) -> None:
        form, data = packed
        head = _HEAD.pack(op, form, len(data))
        head += self._seal.mark(head)
        mark = self._seal.mark(data)
        try:
            if len(data) < 65536:
                self.sock.sendall(head + data + mark)
            else:
                for part in (head, data, mark):
                    self.sock.sendall(part)
        except OSError as error:
            raise self.gone(error) from None

    def receive(self, op: int) -> Any:
        """Raises ConnectionError when the peer has left or says that another one has."""
        head = self._sealed(_HEAD.size)
        got, form, length = _HEAD.unpack(head)
        stuff = _unpack(form, self._sealed(length))
        if got == LEAVE:
            raise ConnectionError(stuff)
        if got != op:
            raise RuntimeError(
                f"the workers are out of step: this one calls {_NAMES[op]}(), {self.peer} calls {_NAMES.get(got, got)}()"
            )
        return stuff

    def _sealed(self, length: int) -> bytearray:
        data = self._read(length)
        if not self._seal.fits(self._read(MARK), data):
            raise ConnectionError(f"a message from {self.peer} was altered in transit")
        return data

    def say_left(self, why: str) -> None:
        """The last word on this connection. Closing it instead could discard the word before the peer has read it, since the
        peer's own data may be unread here; so it is only read empty and shut."""
        self.sock.settimeout(5)
        self.send(LEAVE, why)
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
        try:
            return _read_exactly(self.sock, n)
        except EOFError:
            raise self.gone() from None
        except OSError as error:
            raise self.gone(error) from None


def pack(stuff: Any) -> Tuple[int, bytes]:
    """How ``stuff`` travels: form and content."""
    if _is_plain(stuff):
        return _JSON, json.dumps(stuff).encode()
    return _PICKLE, pickle.dumps(stuff, protocol=5)


def _unpack(form: int, data: bytearray) -> Any:
    return json.loads(data) if form == _JSON else pickle.loads(data)  # nosec B301  # of a worker that has proved itself


def _is_plain(value: Any, depth: int = 2) -> bool:
    """Whether JSON gives it back as it was. Of long or deep lists nobody asks."""
    if type(value) is int:
        return abs(value) < 1 << 63
    if type(value) is list:
        return depth > 0 and len(value) < 1000 and all(_is_plain(item, depth - 1) for item in value)
    return value is None or type(value) in (bool, float, str)


class Chief:
    """Rank 0's end: a channel to every other rank."""

    def __init__(self, channels: Dict[int, Channel]) -> None:
        self._channels = channels

    def gather(self, op: int) -> List[Any]:
        """What every other worker sent, by rank. A worker that leaves is noticed at once, whoever is still awaited."""
        messages: Dict[int, Any] = {}
        poll = select.poll()
        by_fd = {channel.sock.fileno(): rank for rank, channel in self._channels.items()}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        while len(messages) < len(self._channels):
            for fd, _ in poll.poll():
                rank = by_fd[fd]
                messages[rank] = self._call(self._channels[rank].receive, op)
                poll.unregister(fd)
        return [messages[rank] for rank in sorted(messages)]

    def send(self, op: int, stuff: Any) -> None:
        packed = pack(stuff)
        for channel in self._channels.values():
            self._call(channel.send_packed, op, packed)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
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


def accept(sock: socket.socket, secret: Secret, names: Sequence[str], timeout: float) -> Chief:
    """Wait for every rank but 0 (``names``: what to call each in errors) and close the listener.

    Raises RendezvousError that names who is missing.
    """
    address, acceptor = sock.getsockname(), _Acceptor(sock, secret, names)
    try:
        return Chief(acceptor.wait(timeout))
    finally:
        acceptor.close()
        if isinstance(address, str):
            with contextlib.suppress(OSError):
                os.unlink(address)


class _Acceptor:
    """Takes everybody's proof at the same time: a stranger who says nothing keeps nobody waiting."""

    def __init__(self, listener: socket.socket, secret: Secret, names: Sequence[str]) -> None:
        self._listener, self._secret, self._names = listener, secret, names
        self._channels: Dict[int, Channel] = {}
        self._unproved: Deque[socket.socket] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="dethpc-acceptor", daemon=True)

    def wait(self, timeout: float) -> Dict[int, Channel]:
        ranks = range(1, len(self._names))
        self._thread.start()
        with self._changed:
            if self._changed.wait_for(lambda: len(self._channels) == len(ranks), timeout):
                return self._channels
            missing = ", ".join(self._names[rank] for rank in ranks if rank not in self._channels)
            for channel in self._channels.values():
                channel.close()
            raise RendezvousError(f"after {timeout:.0f} s these workers have not joined: {missing}")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for peer in self._unproved:
                _shut(peer)
        _shut(self._listener)  # wakes the thread that accepts
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.01)  # too many files, or a peer that has gone meanwhile
                continue
            with self._changed:
                self._unproved.append(peer)
                if len(self._unproved) > _STRANGERS:
                    _shut(self._unproved.popleft())
            threading.Thread(target=self._meet, args=(peer,), name="dethpc-acceptor", daemon=True).start()

    def _meet(self, peer: socket.socket) -> None:
        try:
            rank, transcript = _caller(peer, self._secret, len(self._names))
            with self._changed:
                is_pending = peer in self._unproved  # else it was shut
                if self._closed or not is_pending or rank in self._channels or not 0 < rank < len(self._names):
                    raise _Rejected
                peer.sendall(self._secret.proof("chief", *transcript))
                _settle(peer)
                self._unproved.remove(peer)  # before anybody can think that all are here, and shut whoever is left
                self._channels[rank] = Channel(peer, self._secret.seal(True, *transcript), self._names[rank])
                self._changed.notify_all()
        except (_Rejected, OSError, EOFError, struct.error):
            peer.close()
        finally:
            with self._changed, contextlib.suppress(ValueError):
                self._unproved.remove(peer)


def connect(address: Address, secret: Secret, rank: int, size: int, chief: str, timeout: float) -> Channel:
    """Raises RendezvousError when the chief cannot be reached in time or does not know the secret."""
    deadline = time.monotonic() + timeout
    pause, why = 0.01, "nobody answers"
    while True:
        sock = socket.socket(socket.AF_UNIX) if isinstance(address, Path) else None
        try:
            if sock is not None:
                sock.settimeout(_PROOF_SECONDS)
                sock.connect(str(address))
            else:
                assert not isinstance(address, Path)
                sock = socket.create_connection(address, timeout=_PROOF_SECONDS)
            return Channel(sock, _introduce(sock, secret, rank, size), chief)
        except (_Rejected, EOFError, struct.error):
            why = "the listener has another key, or already has a worker of this rank"
        except OSError as error:
            why = error.strerror or str(error) or why
        if sock is not None:
            sock.close()
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
        if time.monotonic() >= deadline:
            raise RendezvousError(f"rank {rank} could not join {chief} at {address} within {timeout:.0f} s: {why}")


def _caller(sock: socket.socket, secret: Secret, size: int) -> Tuple[int, Tuple[bytes, bytes]]:
    """The rank of who has proved to belong here, and what the proofs of both sides are over."""
    until = time.monotonic() + _PROOF_SECONDS
    sock.settimeout(_PROOF_SECONDS)
    challenge = nonce()
    sock.sendall(challenge)
    hello = bytes(_read_exactly(sock, _HELLO.size + NONCE, until))
    if not secret.accepts(_read_exactly(sock, MARK, until), "worker", challenge, hello):
        raise _Rejected
    magic, rank, their_size = _HELLO.unpack(hello[: _HELLO.size])
    if magic != _MAGIC or their_size != size:
        raise _Rejected
    return rank, (challenge, hello)


def _introduce(sock: socket.socket, secret: Secret, rank: int, size: int) -> Seal:
    until = time.monotonic() + _PROOF_SECONDS
    challenge = bytes(_read_exactly(sock, NONCE, until))
    hello = _HELLO.pack(_MAGIC, rank, size) + nonce()
    sock.sendall(hello + secret.proof("worker", challenge, hello))
    if not secret.accepts(_read_exactly(sock, MARK, until), "chief", challenge, hello):
        raise _Rejected
    _settle(sock)
    return secret.seal(False, challenge, hello)


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


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _read_exactly(sock: socket.socket, n: int, until: Optional[float] = None) -> bytearray:
    """``until``: on the monotonic clock, for a peer that may send byte by byte. Raises EOFError, OSError."""
    data = bytearray(n)
    view, got = memoryview(data), 0
    while got < n:
        if until is not None:
            sock.settimeout(max(0.001, until - time.monotonic()))
        more = sock.recv_into(view[got:])
        if not more:
            raise EOFError
        got += more
    return data


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        return probe.connect_ex(str(path)) == 0
