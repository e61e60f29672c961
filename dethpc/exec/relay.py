"""The relay: the one way from outside to the services of a task, a process beside the entrypoint on the first node of an attempt.

It listens on a port that the kernel chooses, which ``relay.json`` of the attempt names. Each connection begins with the mutual
proof of ``exec.link`` that both ends know the run's secret. Then the other side names a service by its port; once the relay
has answered ``{"ok": true}``, and not ``{"error"}`` (with ``"busy": true`` where another moment may do), the connection carries the
service's own bytes. A service is of a kind:

- ``tcp``: what listens on that port of this node's loopback;
- ``socket``: what listens on the Unix socket ``SOCKET`` in the attempt's folder of sockets (its port is only a name);
- ``command``: a program, ``argv``, which is started for each connection and has it as its standard input and output.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, Any, Deque, Mapping, NamedTuple, Optional, Sequence

from dethpc.exec.link import TIMEOUT, Link
from dethpc.rundir.files import write_json
from dethpc.rundir.secret import Secret

ROLE = "proxy"
SOCKET = "service"
"""The file of the Unix socket for the kind ``socket``; user code gets its path as ``DETHPC_SERVICE_SOCKET``."""

MOST_UNPROVED = 32
MOST = 256
"""Connections at a time."""

_BUFFER = 1 << 20
_LONGEST_ORDER = 1 << 20


def use(run: str, attempt: int) -> str:
    """For which use of the run's secret both ends prove that they know it."""
    return f"relay {run}.{attempt}"


class Order(NamedTuple):
    """What a relay is started with. ``file``: where it writes its port. ``host``: where it listens, "" for every address."""

    secret: str
    use: str
    services: Sequence[Mapping[str, Any]]
    file: str
    host: str
    socket: str
    directory: str
    environment: Mapping[str, str]


def start(order: Order) -> subprocess.Popen[bytes]:
    """The process of a relay, which ends when this one does or closes its end of the pipe. Raises OSError."""
    child = subprocess.Popen([sys.executable, "-m", "dethpc.exec.relay"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(json.dumps(order._asdict()).encode() + b"\n")
    child.stdin.flush()
    return child


class Relay:
    """Serves connections, each in threads of its own."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._secret = Secret(order.secret, order.use)
        self._services = {int(service["port"]): service for service in order.services}
        self._unproved: Deque[socket.socket] = deque()
        self._lock = threading.Lock()
        self._all = threading.Semaphore(MOST)

    def serve(self, listener: socket.socket) -> None:
        """Does not return."""
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:  # no more descriptors, or a connection that broke at once
                time.sleep(0.1)
                continue
            self._make_room(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _make_room(self, sock: socket.socket) -> None:
        """Of connections that prove nothing, the oldest gives way: a master proves itself in milliseconds, and strangers could hold
        any number of them."""
        with self._lock:
            self._unproved.append(sock)
            if len(self._unproved) > MOST_UNPROVED:
                with contextlib.suppress(OSError):
                    self._unproved.popleft().shutdown(socket.SHUT_RDWR)

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                link = self._proved(sock)
            finally:
                with self._lock, contextlib.suppress(ValueError):  # it has given way
                    self._unproved.remove(sock)
            if link is None:
                return
            self._carry(link)

    def _proved(self, sock: socket.socket) -> Optional[Link]:
        """The connection, once its other end has proved to be the master."""
        link, until = Link(sock), time.monotonic() + TIMEOUT
        link.challenge()
        hello = link.next(until)
        caller = link.caller(self._secret, hello)
        if caller is None or caller.role != ROLE:
            return None
        link.welcome(self._secret, hello)
        return link

    def _carry(self, link: Link) -> None:
        port = link.next(time.monotonic() + TIMEOUT).get("port")
        if not self._all.acquire(blocking=False):
            error = f"{MOST} connections to the task are open, and there can be no more: close some, or wait"
            link.send({"error": error, "busy": True})
            return
        try:
            self._connect_with(port, link)
        finally:
            self._all.release()

    def _connect_with(self, port: object, link: Link) -> None:
        service = self._services.get(port) if isinstance(port, int) else None
        if service is None:
            link.send({"error": f"the task offers no port {port}"})
        elif service["kind"] == "command":
            link.send({"ok": True})
            link.sock.settimeout(None)
            self._run(service["argv"], link.sock)
        else:
            self._splice(link, service)

    def _splice(self, link: Link, service: Mapping[str, Any]) -> None:
        try:
            target = self._connect(service)
        except OSError as error:
            link.send({"error": f"nothing answers at port {service['port']} of the task: {error.strerror or error}"})
            return
        with target:
            link.send({"ok": True})
            if link.lost:
                return
            for sock in (link.sock, target):
                sock.settimeout(None)
            back = threading.Thread(target=pump, args=(target, link.sock), daemon=True)
            back.start()
            pump(link.sock, target)
            back.join()

    def _connect(self, service: Mapping[str, Any]) -> socket.socket:
        """Raises OSError."""
        if service["kind"] == "tcp":
            sock = socket.create_connection(("127.0.0.1", int(service["port"])), TIMEOUT)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(TIMEOUT)
            sock.connect(self._order.socket)
        except BaseException:
            sock.close()
            raise
        return sock

    def _run(self, argv: Sequence[str], sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            subprocess.run(
                list(argv),
                stdin=sock.fileno(),
                stdout=sock.fileno(),
                cwd=self._order.directory,
                env=dict(self._order.environment),
                start_new_session=True,
                check=False,
            )


def pump(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes until ``source`` ends, and that end. Where ``source`` breaks, both do. A target that takes no more may still have
    something to send: the thread of the other direction meets its end."""
    buffer = memoryview(mmap.mmap(-1, _BUFFER))  # of which memory has as much as was ever needed
    try:
        while count := source.recv_into(buffer):
            try:
                target.sendall(buffer[:count])
            except OSError:
                source.shutdown(socket.SHUT_RD)
                return
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _listener(host: str) -> socket.socket:
    if host or not socket.has_dualstack_ipv6():
        listener = socket.create_server((host, 0))
    else:
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    # Connections inherit it. Without it the body of an answer that a service sends after its head waits until the master has
    # acknowledged that, 40 ms later.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _end_with(pipe: IO[bytes]) -> None:
    """The process that started this one holds the other end as long as it lives."""
    while pipe.read(1):
        pass
    os._exit(0)


def main() -> None:
    pipe = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - for the life of the process
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_ORDER and (piece := pipe.read(_LONGEST_ORDER)):
        line += piece
    order = Order(**json.loads(line))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection takes two
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    # Slurm sends the TERM that asks for a checkpoint to every process of a job, and the service is there until it ends. A handler,
    # since programs that are started here would inherit that a signal is ignored.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with _listener(order.host) as listener:
        write_json(Path(order.file), {"port": listener.getsockname()[1]}, durable=False)
        Relay(order).serve(listener)


if __name__ == "__main__":
    main()
