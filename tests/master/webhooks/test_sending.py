"""Connections to receivers: which are made, and how long they last."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from dethpc.config.site import Master
from dethpc.master.certificate import certificate_of
from dethpc.master.webhooks import sending
from dethpc.master.webhooks.sending import Unsent, post, refusal
from dethpc.rundir.home import Home

LOOPBACK = [ip_network("127.0.0.0/8")]


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port on loopback, where ``serve`` has each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    serve(connection)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_receiver_that_answers_without_end_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "DEADLINE", 0.5)

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-More: 1\r\n")
            time.sleep(0.05)

    with server(trickle) as port:
        began = time.monotonic()
        with pytest.raises(Unsent, match="no whole answer within 0.5 s") as failure:
            post(f"http://127.0.0.1:{port}/", b"{}", "key", LOOPBACK)
        assert not failure.value.final and time.monotonic() - began < 60


@pytest.mark.parametrize("answer", [b"", b"\x00\x01\x02\r\n\r\n", b"HTTP/1.1 999999 \r\n\r\n", b"SSH-2.0-OpenSSH\r\n"])
def test_what_is_no_http_is_tried_again(answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with server(serve) as port, pytest.raises(Unsent) as failure:
        post(f"http://127.0.0.1:{port}/", b"{}", "key", LOOPBACK)
    assert not failure.value.final


def test_a_certificate_of_nobody_is_not_believed(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate_of(Home(tmp_path), Master(), ["localhost"]))
    received: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            received.append(tls.recv(65536))

    with server(serve) as port, pytest.raises(Unsent, match="CERTIFICATE_VERIFY_FAILED"):
        post(f"https://localhost:{port}/", b"{}", "key", [*LOOPBACK, ip_network("::1")])
    assert not received


def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer of a name server that is the attacker's leads nowhere."""
    resolutions: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[object]:
        resolutions.append(host)
        address = "127.0.0.1" if len(resolutions) == 1 else "169.254.169.254"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with server(serve) as port:
        assert post(f"http://rebound.example:{port}/", b"{}", "key", LOOPBACK) == "204 No Content"
    assert resolutions == ["rebound.example"]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("93.184.216.34", True),
        ("10.1.2.3", True),
        ("2606:2800:220:1::1", True),
        ("127.8.9.1", False),
        ("0.0.0.7", False),
        ("169.254.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1", False),
        ("ff02::1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("::127.0.0.1", False),
        ("fd00:ec2::254", False),
        ("100.100.100.200", False),
        ("64:ff9b::808:808", True),
        ("fd12::1", True),
    ],
)
def test_which_addresses_are_allowed(address: str, allowed: bool) -> None:
    assert (refusal(ip_address(address), []) == "") is allowed
    assert refusal(ip_address(address), [ip_network("0.0.0.0/0"), ip_network("::/0")]) == ""
