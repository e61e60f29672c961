"""HTTP/1.1 as the client speaks it: what the standard library leaves to its caller, and how what goes wrong is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from dethpc.client import http1
from dethpc.client.http1 import Connection, Disconnected, HttpError, NotHttp


class Server:
    """The other end of a connection: what it was sent, and what it says."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair()
        for end in (ours, self.sock):
            end.settimeout(30)
        self.connection = Connection(ours, "login1", 8080)

    def says(self, *texts: str, hangs_up: bool = False) -> None:
        for text in texts:
            self.sock.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        if hangs_up:
            self.sock.shutdown(socket.SHUT_WR)

    def heard(self) -> bytes:
        return self.sock.recv(1 << 16)

    def close(self) -> None:
        self.connection.close()
        self.sock.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        ("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", b"hello"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nhel\n2\nlo\n0\n\n", b"hello"),
        ("HTTP/1.1 204 No Content\n\n", b""),
        ("HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nContent-Length: 1\n\n1", b"1"),
    ],
)
def test_a_connection_is_good_for_the_next_request_once_an_answer_is_read(
    server: Server, answer: str, body: bytes
) -> None:
    for _ in range(3):
        server.connection.request("GET", "/x", {})
        assert server.heard().startswith(b"GET /x HTTP/1.1\r\nHost: login1:8080\r\n")
        server.says(answer)
        given = server.connection.answer()
        assert given.read() == body and given.ended and not given.will_close and server.connection.idle


def test_an_answer_without_a_length_ends_with_the_connection(server: Server) -> None:
    server.connection.request("GET", "/x", {})
    server.says("HTTP/1.1 200 OK\nLocation: /y\n\nsome", " more", hangs_up=True)
    answer = server.connection.answer()
    assert (answer.status, answer.location, answer.read()) == (200, "/y", b"some more") and answer.will_close


def test_a_body_comes_piece_by_piece_and_no_more_of_it_than_was_wanted(server: Server) -> None:
    server.connection.request("GET", "/x", {})
    server.says("HTTP/1.1 200 OK\nContent-Length: 6\n\nabcdef")
    answer = server.connection.answer()
    assert answer.read(2) == b"ab" and not answer.ended
    assert answer.read1(100) == b"cdef" and answer.ended and answer.read1(1) == b""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", Disconnected),
        ("220 mail.example.org ESMTP\n", NotHttp),
        ("HTTP/3 200 OK\n\n", NotHttp),
        ("HTTP/1.1 101 Switching Protocols\nUpgrade: x\n\n", HttpError),
        ("HTTP/1.1 200 OK\n" + "X: y\n" * 101 + "\n", HttpError),
        ("HTTP/1.1 200 OK\nX: " + "y" * (1 << 17) + "\n\n", HttpError),
    ],
    ids=["nothing", "mail", "unknown version", "another protocol", "too many lines", "too long a line"],
)
def test_what_is_no_answer_is_an_error_that_says_so(server: Server, words: str, error: type[HttpError]) -> None:
    server.connection.request("GET", "/x", {})
    speaker = threading.Thread(target=server.says, args=(words,), kwargs={"hangs_up": True})
    speaker.start()
    with pytest.raises(error):
        server.connection.answer()
    server.connection.close()
    speaker.join()


@pytest.mark.parametrize(
    "body", ["Content-Length: 9\n\nabc", "Transfer-Encoding: chunked\n\n9\nabc", "Transfer-Encoding: chunked\n\nx\nabc"]
)
def test_a_body_that_breaks_off_is_no_body(server: Server, body: str) -> None:
    server.connection.request("GET", "/x", {})
    server.says(f"HTTP/1.1 200 OK\n{body}", hangs_up=True)
    with pytest.raises(HttpError):
        server.connection.answer().read()


def test_what_nobody_has_asked_for_ends_the_connection(server: Server) -> None:
    assert server.connection.idle
    server.says("HTTP/1.1 408 Too late\n\n")
    assert not server.connection.idle


def test_a_second_request_waits_for_the_answer_to_the_first(server: Server) -> None:
    server.connection.request("GET", "/x", {})
    with pytest.raises(HttpError):
        server.connection.request("GET", "/y", {})


def test_silence_is_a_time_out_that_says_how_long_it_was(server: Server) -> None:
    server.connection.sock.settimeout(0.01)
    server.connection.request("GET", "/x", {})
    with pytest.raises(socket.timeout, match=r"said nothing for 0\.01 s"):
        server.connection.answer()


def test_a_body_in_pieces_goes_out_piece_by_piece(server: Server) -> None:
    server.connection.request("POST", "/x", {"Content-Length": "4"}, iter([b"ab", memoryview(b"cd")]))
    sent = b""
    while not sent.endswith(b"abcd"):
        sent += server.heard()
    assert b"Content-Length: 4\r\n" in sent and b"chunked" not in sent


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/a b", {}),
        ("GET", "/a\r\nX: y", {}),
        ("GET", "/\xe9", {}),
        ("GET\r\nX: y", "/", {}),
        ("GET", "/", {"X": "a\r\nY: b"}),
        ("GET", "/", {"X\r\nY": "b"}),
        ("GET", "/", {"X": "\u20ac"}),
    ],
)
def test_nothing_is_smuggled_into_a_request(server: Server, method: str, target: str, headers: dict[str, str]) -> None:
    with pytest.raises(HttpError):
        server.connection.request(method, target, headers)
    server.connection.close()
    assert server.heard() == b""


@pytest.mark.parametrize(
    ("host", "authority"), [("localhost", "localhost:{}"), ("127.0.0.1", "127.0.0.1:{}"), ("::1", "[::1]:{}")]
)
def test_a_server_is_named_as_it_is_reached(host: str, authority: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(("::1" if ":" in host else "127.0.0.1", 0), family=family) as server:
        there = server.getsockname()[1]
        heard: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as client:
                heard.append(client.recv(1 << 16))
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                client.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = http1.connect(host, there, 30.0)
        assert connection.idle and connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.request("GET", "/x", {})
        assert connection.answer().read() == b"ok" and connection.idle
        connection.close()
        assert not connection.idle
        thread.join()
    assert f"Host: {authority.format(there)}\r\n".encode() in heard[0]


def test_a_name_that_no_machine_can_have_is_an_error_of_the_network() -> None:
    for name in ("a..b", "\xe9..x", "x" * 300 + "\xe9"):
        with pytest.raises(OSError):
            http1.connect(name, 1, 1.0)
