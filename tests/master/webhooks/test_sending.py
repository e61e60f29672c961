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
from typing import Any

import pytest

from dethpc.config.site import Master
from dethpc.master.certificate import certificate_of
from dethpc.master.webhooks import sending
from dethpc.master.webhooks.sending import Allowlist, Unsent, post, refusal
from dethpc.rundir.home import Home

LOOPBACK = Allowlist([ip_network("127.0.0.0/8")])


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
        post(f"https://localhost:{port}/", b"{}", "key", Allowlist([*LOOPBACK.networks, ip_network("::1")]))
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


# --- by a proxy


NAMES = {
    "outside.example": None,
    "inside.example": "169.254.7.7",
    "both.example": "93.184.216.34",
    "here.example": "127.0.0.1",
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine knows of ``NAMES``; None: nothing."""
    real = socket.getaddrinfo

    def resolve(host: str, port: int, **options: Any) -> Any:
        address = NAMES.get(host, host)
        if address is None:
            raise socket.gaierror(-2, "Name or service not known")
        return real(address, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def request_of(connection: socket.socket) -> bytes:
    """All of it: what is closed with bytes unread is reset, and its answer may be lost."""
    request = b""
    while not request.endswith(b"\r\n\r\n" if request.startswith(b"CONNECT") else b"{}"):
        request += connection.recv(65536)
    return request


@contextmanager
def proxy(answer: bytes = b"HTTP/1.1 204 No Content\r\n\r\n") -> Iterator[tuple[str, list[bytes]]]:
    """Its URL, and the beginning of each request."""
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        requests.append(request_of(connection))
        connection.sendall(answer)

    with server(serve) as port:
        yield f"http://127.0.0.1:{port}", requests


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("host", ["outside.example", "both.example", "93.184.216.34"])
def test_the_sites_proxy_gets_what_goes_outside(host: str) -> None:
    with proxy() as (url, requests):
        assert post(f"http://{host}:8080/x?y=1", b"{}", "key", LOOPBACK, url) == "204 No Content"
    (request,) = requests
    assert request.startswith(f"POST http://{host}:8080/x?y=1 HTTP/1.1\r\nHost: {host}:8080\r\n".encode())


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("inside.example", "link-local"),
        ("169.254.169.254", "link-local"),
        ("127.0.0.1", "loopback"),
        ("here.example", "loopback"),
    ],
)
def test_a_proxy_opens_no_way_to_what_is_refused(host: str, why: str) -> None:
    with proxy() as (url, requests), pytest.raises(Unsent, match=why) as failure:
        post(f"http://{host}/", b"{}", "key", Allowlist(), url)
    assert failure.value.final and not requests


@pytest.mark.usefixtures("names")
def test_names_of_loopback_are_left_to_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, "x.localhost", None)
    with proxy() as (url, requests), pytest.raises(Unsent, match="loopback"):
        post("https://x.localhost/", b"{}", "key", Allowlist(), url)
    assert not requests


@pytest.mark.usefixtures("names")
def test_what_the_site_allows_by_its_address_is_reached_without_the_proxy() -> None:
    with proxy() as (url, requests), proxy() as (receiver, posts):
        port = receiver.rpartition(":")[2]
        assert post(f"http://here.example:{port}/", b"{}", "key", LOOPBACK, url) == "204 No Content"
    assert not requests and posts[0].startswith(b"POST / HTTP/1.1")


@pytest.mark.usefixtures("names")
def test_tls_goes_through_a_tunnel_to_the_receiver_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificate_of(Home(tmp_path), Master(), ["outside.example"])
    receivers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    receivers.load_cert_chain(*files)
    ours = ssl.create_default_context(cafile=str(files[0]))
    monkeypatch.setattr(ssl, "create_default_context", lambda: ours)
    received: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        received.append(request_of(connection))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
        with receivers.wrap_socket(connection, server_side=True) as tls:
            received.append(request_of(tls))
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with server(serve) as port:
        assert post("https://outside.example/x", b"{}", "key", Allowlist(), f"http://127.0.0.1:{port}") == "200 OK"
    tunnel, request = received
    assert tunnel == b"CONNECT outside.example:443 HTTP/1.1\r\nHost: outside.example:443\r\n\r\n"
    assert request.startswith(b"POST /x HTTP/1.1\r\nHost: outside.example\r\n")


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"),
        (b"", "no HTTP"),
        (b"SSH-2.0-x\r\n\r\n", "by the proxy"),
    ],
)
def test_a_proxy_that_refuses_is_named(answer: bytes, why: str) -> None:
    with proxy(answer) as (url, _), pytest.raises(Unsent, match=why) as failure:
        post("https://outside.example/", b"{}", "key", Allowlist(), url)
    assert not failure.value.final


@pytest.mark.usefixtures("names")
def test_a_proxy_of_the_environment_is_not_used_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy() as (url, requests):
        monkeypatch.setenv("https_proxy", url)
        with pytest.raises(Unsent, match=r"webhooks\.proxy of site\.yaml"):
            post("https://outside.example/", b"{}", "key", Allowlist())
    assert not requests
