"""``det tunnel``: ports of this machine that lead to those of a task, through the master."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

import click

from dethpc.cli import output
from dethpc.cli.connect import connect

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from dethpc.client import Session

_READ = 1 << 18
LOOPBACK = "127.0.0.1"
TCP = {"X-Dethpc-Tunnel": "tcp"}
"""The header field of a request for the bytes of a service, whatever it carries."""


class PortPair(NamedTuple):
    """A port of this machine, and that of the task to which it leads."""

    local: int
    remote: int

    @classmethod
    def parse(cls, text: str) -> PortPair:
        """From ``[LOCAL:]PORT``. Raises BadParameter."""
        local, colon, remote = text.partition(":")
        try:
            ports = int(local), int(remote if colon else local)
        except ValueError:
            ports = (0, 0)
        if not all(0 < port < 1 << 16 for port in ports):
            raise click.BadParameter(f"{text!r} is not PORT or LOCAL_PORT:PORT, such as 8000 or 9000:8000")
        return cls(*ports)


@click.command()
@click.argument("task_id")
@click.argument("ports", nargs=-1, metavar="[[LOCAL_PORT:]PORT]...")
def tunnel(task_id: str, ports: tuple[str, ...]) -> None:
    """Lead ports of this machine to ports of a task, until interrupted. The task offers those of its environment.proxy_ports.

    Only your own processes can connect to them. Without ports, standard input and output lead to the task's main service, or with
    TASK_ID:PORT to that port, as a ProxyCommand of ssh needs it.
    """
    from dethpc.client.nouns import tasks

    session = connect()
    text, *port = task_id.split(":", 1)
    task_id = tasks.named_of_any_kind(session, text)
    if not ports:
        carry_standard_streams(session, ":".join([task_id, *port]))
        return
    pairs = [PortPair.parse(text) for text in ports]
    for pair in pairs:
        check(session, f"{task_id}:{pair.remote}")
    with forwarded(session, task_id, pairs):
        threading.Event().wait()


def check(session: Session, name: str) -> None:
    """Raises NotFound, Refused, MasterError: the task does not offer it, or does not run."""
    session.raw(f"/proxy/{quote(name)}/", fields=TCP)


@contextlib.contextmanager
def forwarded(session: Session, task_id: str, pairs: Sequence[PortPair]) -> Iterator[None]:
    """Within, the ports lead to the task. Raises UsageError where one is taken."""
    with contextlib.ExitStack() as stack:
        for pair in pairs:
            try:
                listener = stack.enter_context(socket.create_server((LOOPBACK, pair.local)))
            except OSError as error:
                raise click.UsageError(f"cannot listen on port {pair.local}: {error.strerror}") from None
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
            name = f"{task_id}:{pair.remote}"
            threading.Thread(target=_accept, args=(session, name, listener), daemon=True).start()
            output.say(f"{LOOPBACK}:{pair.local} leads to port {pair.remote} of task {task_id}")
        yield


def _accept(session: Session, name: str, listener: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        while True:
            sock, address = listener.accept()
            if _is_own(address):
                threading.Thread(target=_carry, args=(session, name, sock), daemon=True).start()
            else:
                sock.close()


def _is_own(address: tuple[str, int]) -> bool:
    """Whether the process at the other end is this user's: others of this machine can connect, too. True also where the kernel
    does not say."""
    ip = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    end = f"{ip:08X}:{address[1]:04X}"
    try:
        with open("/proc/net/tcp") as table:
            owners = [line.split()[7] for line in table if line.split()[1] == end]
    except OSError:
        return True
    return str(os.geteuid()) in owners


def _carry(session: Session, name: str, sock: socket.socket) -> None:
    from dethpc.errors import DethpcError

    with sock:
        try:
            with opened(session, name) as stream:
                back = threading.Thread(target=_to_socket, args=(stream, sock), daemon=True)
                back.start()
                _from_socket(sock, stream)
                back.join()
        except (DethpcError, OSError) as error:
            output.say(f"{name}: {error}")


def _from_socket(sock: socket.socket, stream: ClientConnection) -> None:
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(OSError, ConnectionClosed):
        while data := sock.recv(_READ):
            stream.send(data)
    stream.close()


def _to_socket(stream: ClientConnection, sock: socket.socket) -> None:
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(OSError, ConnectionClosed):
        for message in stream:
            sock.sendall(message if isinstance(message, bytes) else message.encode())
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def carry_standard_streams(session: Session, name: str) -> None:
    """Raises MasterError."""
    from websockets.exceptions import ConnectionClosed

    from dethpc.errors import MasterError

    with opened(session, name) as stream:
        threading.Thread(target=_from_input, args=(stream,), daemon=True).start()
        try:
            for message in stream:
                _write(message if isinstance(message, bytes) else message.encode())
        except BrokenPipeError:
            pass
        except ConnectionClosed:
            raise MasterError(f"the tunnel to {name} broke off: the master ended, or the way to it did") from None


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def _from_input(stream: ClientConnection) -> None:
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(OSError, ConnectionClosed):
        while data := os.read(0, _READ):
            stream.send(data)
    stream.close()


@contextlib.contextmanager
def opened(session: Session, name: str) -> Iterator[ClientConnection]:
    """A tunnel to ``TASK`` or ``TASK:PORT``. Raises MasterError."""
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.sync.client import connect as websocket

    from dethpc.errors import MasterError

    sock, fields = session.dial()
    where = urlsplit(session.url)
    try:
        stream = websocket(
            f"ws://{where.netloc}{where.path}/proxy/{quote(name)}/",
            sock=sock,
            compression=None,
            proxy=None,
            additional_headers={**fields, **TCP},
            max_size=None,
            ping_interval=None,
        )
    except InvalidStatus as error:
        raise MasterError(_message(bytes(error.response.body)), error.response.status_code) from None
    except (WebSocketException, OSError) as error:
        raise MasterError(f"the tunnel to {name} cannot be opened: {error}") from None
    with stream:
        yield stream


def _message(body: bytes) -> str:
    import json

    try:
        return str(json.loads(body)["error"]["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
